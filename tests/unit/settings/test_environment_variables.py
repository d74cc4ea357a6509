from __future__ import annotations

import functools
import logging
from typing import Any

import pytest

from boxengine.adapters.builtin import BUILTIN_TRANSPORTS
from boxengine.errors import BoxError, ConfigurationError
from boxengine.settings import explain, resolve
from tests.unit.settings.folder import Folder
from tests.unit.transports.items import make_item


def test_a_variable_is_put_into_text(folder: Folder) -> None:
    folder.environ["DB_HOST"] = "db"
    settings = folder.settings("database: {url: 'postgresql+psycopg://u@${DB_HOST}:${DB_PORT:-5432}/shop'}")
    assert settings.database.url == "postgresql+psycopg://u@db:5432/shop"


def test_the_default_stands_for_an_empty_variable(folder: Folder) -> None:
    folder.environ["TEAM"] = ""
    assert folder.settings("owner: ${TEAM:-nobody}").owner == "nobody"


def test_a_line_break_at_the_end_of_a_variable_is_no_part_of_the_value(folder: Folder) -> None:
    """A secret made of a file that an editor has saved has one."""
    folder.environ.update(SERVERS="kafka:9092\r\n", PASSWORD="secret\n", TEAM="\n")
    settings = folder.settings(
        "kafka: {bootstrap_servers: '${SERVERS}', config: {sasl.password: '${PASSWORD}'}}\nowner: '${TEAM:-nobody}'"
    )
    assert settings.kafka.for_all() == {"bootstrap_servers": "kafka:9092", "config": {"sasl.password": "secret"}}
    assert settings.owner == "nobody"


def test_numbers_flags_and_times_may_come_from_variables(folder: Folder) -> None:
    folder.environ.update(ON="true", MULTIPLIER="1.5")
    settings = folder.settings(
        """
        metrics: {enabled: "${ON}", port: "${PORT:-9191}"}
        poller: {rate_interval: "${INTERVAL:-2.5}"}
        outbox_items:
          a_item: {multiplier_retry_interval: "${MULTIPLIER}", strict_order: "${STRICT:-key}", retention: "${KEEP:-P2W}"}
        """
    )
    box = settings.outbox_items["a_item"]
    assert (settings.metrics.enabled, settings.metrics.port) == (True, 9191)
    assert settings.poller.rate_interval.total_seconds() == 2.5
    assert (box.multiplier_retry_interval, box.strict_order, box.retention.days) == (1.5, "key", 14)


def test_each_missing_variable_is_reported_where_it_is_used(folder: Folder) -> None:
    problems = folder.problems("owner: ${TEAM}\napp: [json, '${APP}']\n")
    assert problems["owner"].startswith("environment variable TEAM is not set")
    assert problems["app[1]"].startswith("environment variable APP is not set")


def test_variables_of_other_environments_are_not_needed(folder: Folder) -> None:
    folder.write("development: {bucket_size: 2}\nproduction: {owner: '${TEAM}'}")
    assert folder.load().bucket_size == 2


def test_a_variable_of_an_overridden_value_is_not_needed(folder: Folder) -> None:
    folder.write("owner: ${TEAM}", "a.yml")
    folder.write("owner: me", "b.yml")
    assert folder.load("a.yml", "b.yml").owner == "me"


def test_variables_reach_transport_arguments(folder: Folder) -> None:
    folder.environ["TOPIC"] = "orders"
    settings = folder.settings(
        "outbox_items: {a_item: {transports: [{class: log, topics: ['${TOPIC}', {name: '${TOPIC}-2'}]}]}}"
    )
    assert settings.boxes["a_item"].transports["0"].arguments == {"topics": ["orders", {"name": "orders-2"}]}


def built(folder: Folder, transport: str) -> Any:
    """One of the transports that come with boxengine, made as the file says."""
    settings = folder.settings(f"outbox_items: {{a_item: {{transports: {{{transport}}}}}}}")
    [spec] = resolve(settings, builtin_transports=BUILTIN_TRANSPORTS).pipelines["a_item"].transports
    return spec.build()


@pytest.mark.parametrize("allow", ["false", "off", "0"])
def test_a_variable_that_says_no_keeps_webhooks_from_private_addresses(folder: Folder, allow: str) -> None:
    folder.environ["ALLOW"] = allow
    transport = "http: {url: 'https://127.0.0.1/', allow_private: '${ALLOW:-true}'}"
    with pytest.raises(BoxError, match="is not a public address"):
        built(folder, transport)
    folder.environ["ALLOW"] = ""
    built(folder, transport).close()


def test_a_variable_may_limit_what_the_log_shows(folder: Folder, caplog: pytest.LogCaptureFixture) -> None:
    transport = built(folder, "log: {payload_limit: '${LIMIT:-0}', level: '${LEVEL:-info}'}")
    with caplog.at_level(logging.INFO):
        transport(make_item(), b"not to be seen")
    [record] = caplog.records
    assert "order_outbox_item 1 delivered" in record.getMessage()
    assert "not to be seen" not in record.getMessage()


def test_an_argument_of_a_built_in_transport_gets_what_it_is_annotated_as(folder: Folder) -> None:
    arguments = "{topic: '${TOPIC:-7}', max_retries: '${MORE:-3}', delivery_timeout: '${TIMEOUT:-2.5}'}"
    resolved = folder.resolved(f"outbox_items: {{a_item: {{transports: {{kafka: {arguments}}}}}}}")
    made = resolved.pipelines["a_item"].transports[0].build()
    assert (made.topic, made.max_retries, made.delivery_timeout) == ("7", 3, 2.5)


def test_a_class_of_the_applications_own_gets_texts(folder: Folder) -> None:
    text = "outbox_items: {a_item: {transports: {tests.unit.settings.shop.Punctual: {timeout: '${TIMEOUT:-5}'}}}}"
    [spec] = folder.resolved(text).pipelines["a_item"].transports
    assert spec.build().timeout == "5"


def test_each_text_that_is_not_what_a_transport_needs_is_reported_at_its_argument(folder: Folder) -> None:
    folder.write(
        """
        outbox_items:
          a_item:
            transports:
              redis_stream: {stream: s, approximate: "${EXACT:-maybe}", maxlen: "${LENGTH:-many}", timeout: "${T:-soon}"}
        """
    )
    with pytest.raises(ConfigurationError) as error:
        resolve(folder.load(), builtin_transports=BUILTIN_TRANSPORTS)
    base = "outbox_items.a_item.transports.redis_stream"
    assert {problem.path: problem.message for problem in error.value.problems} == {
        f"{base}.approximate": "expected true or false, got 'maybe'",
        f"{base}.maxlen": "expected a whole number from 0 up, got 'many'",
        f"{base}.timeout": "expected a number from 0 up, got 'soon'",
    }


@pytest.mark.parametrize(
    ("transport", "argument", "message"),
    [
        ("kafka: {topic: 7, bootstrap_servers: 'b:1'}", "topic", "expected text (put it in quotes), got 7"),
        ("kafka: {topic: t, bootstrap_servers: 5}", "bootstrap_servers", "expected text (put it in quotes), got 5"),
        ("kafka: {topic: t, config: [a]}", "config", "expected a mapping (key: value), got a list"),
        ("file: {path: yes}", "path", "expected text (put it in quotes), got true"),
        ("log: {level: 10}", "level", "expected text (put it in quotes), got 10"),
        ("log: {payload_limit: -1}", "payload_limit", "expected a whole number from 0 up, got -1"),
        ("http: {url: }", "url", "missing: http requires this argument"),
        ("http: {url: 'https://h', allow_private: 5}", "allow_private", "expected true or false, got 5"),
        ("http: {url: 'https://h', headers: [a]}", "headers", "expected a mapping (key: value), got a list"),
        ("http: {url: 'https://h', secret: 4711}", "secret", "expected text (put it in quotes)"),
        ("http: {url: 'https://h', secret: [4711]}", "secret", "expected text"),
    ],
)
def test_a_value_that_is_not_what_a_built_in_transport_needs_is_found_before_the_start(
    folder: Folder, transport: str, argument: str, message: str
) -> None:
    folder.write(f"outbox_items: {{a_item: {{transports: {{{transport}}}}}}}")
    with pytest.raises(ConfigurationError) as error:
        resolve(folder.load(), builtin_transports=BUILTIN_TRANSPORTS)
    path = f"outbox_items.a_item.transports.{transport.partition(':')[0]}.{argument}"
    assert {problem.path: problem.message for problem in error.value.problems} == {path: message}


def test_an_argument_without_a_value_is_left_out_unless_nothing_is_a_choice(folder: Folder) -> None:
    arguments = "{topic: t, bootstrap_servers: , config: , content_type: , delivery_timeout: }"
    settings = folder.settings(
        "kafka: {bootstrap_servers: 'b:1', config: {linger.ms: 5}}\n"
        f"outbox_items: {{a_item: {{transports: {{kafka: {arguments}}}}}}}"
    )
    [spec] = resolve(settings, builtin_transports=BUILTIN_TRANSPORTS).pipelines["a_item"].transports
    assert isinstance(spec.build, functools.partial)
    assert spec.build.keywords == {
        "topic": "t",
        "bootstrap_servers": "b:1",
        "config": {"linger.ms": 5},
        "content_type": None,
    }


def test_a_doubled_dollar_is_the_text_itself(folder: Folder) -> None:
    assert folder.settings("owner: $${TEAM}").owner == "${TEAM}"


@pytest.mark.parametrize("text", ["$${A:?b}", "$${ A }", "$${A", "x$${}"])
def test_a_doubled_dollar_keeps_any_brace(folder: Folder, text: str) -> None:
    assert folder.settings(f"owner: '{text}'").owner == text.replace("$$", "$")


@pytest.mark.parametrize(
    "text", ["${A:?needed}", "${A-b}", "${A:=b}", "${A:-${B}}", "${ A }", "${a-name}", "${A", "${}"]
)
def test_what_a_shell_would_understand_otherwise_is_not_taken_for_text(folder: Folder, text: str) -> None:
    folder.environ.update(A="a", B="b")
    problems = folder.problems(f"owner: '{text}'")
    assert problems["owner"].startswith("a ${ that is not understood; expected ${NAME} or ${NAME:-default}")


@pytest.mark.parametrize(("environ", "topic"), [({}, "orders.{event_name}"), ({"TOPIC": "x.{box}"}, "x.{box}")])
def test_a_default_may_hold_a_template(folder: Folder, environ: dict[str, str], topic: str) -> None:
    folder.environ.update(environ)
    assert folder.settings("owner: '${TOPIC:-orders.{event_name}}'").owner == topic


def test_what_a_variable_holds_is_not_looked_through_again(folder: Folder) -> None:
    folder.environ["TEAM"] = "${OTHER}"
    assert folder.settings("owner: ${TEAM}").owner == "${OTHER}"


def test_erb_is_pointed_out(folder: Folder) -> None:
    assert "ERB is not evaluated" in folder.problems("owner: <%= ENV['TEAM'] %>")["owner"]


def test_database_url_and_redis_url_are_the_defaults_of_their_keys(folder: Folder) -> None:
    folder.environ.update(DATABASE_URL="postgresql+psycopg://u@db/shop", REDIS_URL="redis://cache:6379/3")
    settings = folder.settings("database: {prepared_statements: false}\nredis:\n")
    assert (settings.database.url, settings.redis.url) == ("postgresql+psycopg://u@db/shop", "redis://cache:6379/3")
    assert settings.database.prepared_statements is False
    rows = {row.path: row.source for row in explain(settings)}
    assert rows["database.url"] == "environment ($DATABASE_URL)"
    assert rows["redis.url"] == "environment ($REDIS_URL)"


def test_what_a_file_says_goes_before_database_url_and_redis_url(folder: Folder) -> None:
    folder.environ.update(DATABASE_URL="sqlite://", REDIS_URL="nonsense")
    settings = folder.settings("database: {url: postgresql://own/db}\nredis: {url: redis://own/1}")
    assert (settings.database.url, settings.redis.url) == ("postgresql://own/db", "redis://own/1")


def test_redis_url_does_not_contradict_sentinels(folder: Folder) -> None:
    folder.environ.update(REDIS_URL="redis://cache:6379/3")
    assert folder.settings("redis: {sentinels: a:1, master_name: m}").redis.sentinels == ("a:1",)


def test_a_mistake_in_database_url_names_the_variable(folder: Folder) -> None:
    folder.environ.update(DATABASE_URL="shop")
    folder.write("owner: me")
    with pytest.raises(ConfigurationError) as error:
        folder.load()
    [problem] = error.value.problems
    assert str(problem).startswith("environment ($DATABASE_URL): database.url: expected a SQLAlchemy URL")
