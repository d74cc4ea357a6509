from __future__ import annotations

import pytest

from boxengine.errors import ConfigurationError
from boxengine.settings import explain
from tests.unit.settings.folder import Folder


def test_a_variable_is_put_into_text(folder: Folder) -> None:
    folder.environ["DB_HOST"] = "db"
    settings = folder.settings("database: {url: 'postgresql+psycopg://u@${DB_HOST}:${DB_PORT:-5432}/shop'}")
    assert settings.database.url == "postgresql+psycopg://u@db:5432/shop"


def test_the_default_stands_for_an_empty_variable(folder: Folder) -> None:
    folder.environ["TEAM"] = ""
    assert folder.settings("owner: ${TEAM:-nobody}").owner == "nobody"


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


def test_a_doubled_dollar_is_the_text_itself(folder: Folder) -> None:
    assert folder.settings("owner: $${TEAM}").owner == "${TEAM}"


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
