"""Each key: its default, what it accepts, what it refuses."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from boxengine.domain.box import StrictOrder
from boxengine.settings import Settings
from tests.unit.settings.folder import Folder


def test_defaults_are_those_of_the_contract(folder: Folder) -> None:
    settings = folder.settings("")
    poller, processor = settings.poller, settings.processor
    assert settings.bucket_size == 16
    assert settings.redis.url == "redis://127.0.0.1:6379/0"
    assert (poller.concurrency, poller.threads_count, poller.general_timeout) == (6, 1, timedelta(seconds=60))
    assert (poller.regular_items_batch_size, poller.retryable_items_batch_size, poller.tactic) == (200, 100, "default")
    assert (poller.rate_limit, poller.rate_interval) == (60, timedelta(seconds=60))
    assert (poller.min_queue_size, poller.max_queue_size) == (10, 100)
    assert (poller.min_queue_timelag, poller.queue_delay) == (timedelta(seconds=5), timedelta(seconds=0.1))
    assert (processor.threads_count, processor.general_timeout) == (4, timedelta(seconds=180))
    assert (processor.cutoff_timeout, processor.brpop_delay) == (timedelta(seconds=90), timedelta(seconds=1))
    assert (settings.metrics.enabled, settings.metrics.port) == (False, 9090)
    assert (settings.probes.enabled, settings.probes.port) == (True, 5555)
    assert (settings.polling_auto_disabled, settings.disposable_transports) == (False, False)
    assert settings.wakeup == "notify"
    assert (settings.logging.format, settings.logging.level) == ("auto", "info")
    assert settings.tracing.item_spans is False


def test_words_of_logging_may_be_in_capitals(folder: Folder) -> None:
    settings = folder.settings("logging: {format: JSON, level: WARNING}")
    assert (settings.logging.format, settings.logging.level) == ("json", "warning")


def test_defaults_of_a_box_are_those_of_the_contract(folder: Folder) -> None:
    box = folder.settings("outbox_items: {a_item: }").outbox_items["a_item"]
    assert (box.strict_order, box.retries) == (StrictOrder.NONE, 0)
    assert box.strategies == ("exponential_backoff",)
    assert (box.minimal_retry_interval, box.maximal_retry_interval) == (timedelta(seconds=10), timedelta(seconds=600))
    assert (box.multiplier_retry_interval, box.jitter_retry_interval) == (2, 0)
    assert (box.retention, box.min_retention_period) == (timedelta(weeks=1), timedelta(days=1))
    assert (box.delivered_retention, box.delivered_min_retention_period) == (timedelta(weeks=1), timedelta(hours=1))
    assert (box.deletion_batch_size, box.deletion_sleep_time) == (1000, timedelta(seconds=0.5))
    assert box.deletion_time_window == timedelta(hours=4)
    assert box.table_for("a_item") == "a_items"


def test_a_box_may_have_a_limit_of_payloads_of_its_own(folder: Folder) -> None:
    settings = folder.settings("max_payload_bytes: 10\noutbox_items: {a_item: , b_item: {max_payload_bytes: 20}}")
    assert [settings.max_payload_of(box) for box in settings.boxes.values()] == [10, 20]
    assert Settings().max_payload_of(settings.boxes["a_item"]) is None


def test_delivered_items_stay_as_long_as_the_others_unless_told_otherwise(folder: Folder) -> None:
    settings = folder.settings("outbox_items: {a_item: {retention: P3D}}")
    assert settings.outbox_items["a_item"].delivered_retention == timedelta(days=3)


def test_a_key_without_a_value_is_the_same_as_no_key(folder: Folder) -> None:
    settings = folder.settings("owner:\npoller:\n  rate_limit:\noutbox_items:\n")
    assert settings.model_dump() == Settings().model_dump()


def test_settings_are_frozen(folder: Folder) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        folder.settings("").bucket_size = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("bucket_size: 0", "bucket_size", "expected a whole number from 1 up, got 0"),
        ("bucket_size: true", "bucket_size", "expected a whole number from 1 up, got true"),
        ("bucket_size: many", "bucket_size", "expected a whole number from 1 up, got 'many'"),
        ("bucket_size: 1.5", "bucket_size", "expected a whole number from 1 up, got 1.5"),
        ("owner: 5", "owner", "expected text (put it in quotes), got 5"),
        ("owner: ''", "owner", "expected text, got ''"),
        ("app: {a: b}", "app", "expected a list, got a mapping"),
        ("app: [json, 5]", "app[1]", "expected text (put it in quotes), got 5"),
        ("metrics: {enabled: maybe}", "metrics.enabled", "expected true or false, got 'maybe'"),
        ("metrics: yes please", "metrics", "expected a mapping (key: value), got 'yes please'"),
        ("metrics: {port: 65536}", "metrics.port", "expected a whole number from 0 to 65535, got 65536"),
        ("probes: {port: SET-ME}", "probes.port", "expected a whole number from 0 to 65535, got 'SET-ME'"),
        ("wakeup: never", "wakeup", "expected one of notify, redis or none, got 'never'"),
        ("logging: {format: xml}", "logging.format", "expected one of auto, json or text, got 'xml'"),
        ("logging: {level: 5}", "logging.level", "expected one of debug, info, warning or error, got 5"),
        ("tracing: {item_spans: some}", "tracing.item_spans", "expected true or false, got 'some'"),
        (
            "poller: {tactic: lazy}",
            "poller.tactic",
            "expected one of default, low-priority, aggressive or noop, got 'lazy'",
        ),
        (
            "poller: {general_timeout: 0}",
            "poller.general_timeout",
            "expected seconds (more than 0), or an ISO 8601 duration such as PT10S, got 0",
        ),
        (
            "poller: {queue_delay: -1}",
            "poller.queue_delay",
            "expected seconds (0 or more), or an ISO 8601 duration such as PT10S, got -1",
        ),
        ("outbox_items: [a]", "outbox_items", "expected a mapping (key: value), got a list"),
        ("outbox_items: {a_item: 5}", "outbox_items.a_item", "expected a mapping (key: value), got 5"),
        (
            "redis: {url: 'http://x'}",
            "redis.url",
            "expected a URL that begins with redis://, rediss:// or unix://, got 'http://x'",
        ),
        ("redis: {sentinels: [a], master_name: m}", "redis.sentinels[0]", "expected host:port, got 'a'"),
    ],
)
def test_a_wrong_value_is_reported_with_its_path_what_was_expected_and_what_was_found(
    folder: Folder, text: str, path: str, message: str
) -> None:
    assert folder.problems(text) == {path: message}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bucket_size: 0", "expected a whole number from 1 up, got 0"),
        ("max_retries: -1", "expected a whole number from 0 up, got -1"),
        ("strict_order: sometimes", "expected true, false, bucket or key, got 'sometimes'"),
        ("multiplier_retry_interval: 0.5", "expected a number from 1 up, got 0.5"),
        ("jitter_retry_interval: 1.1", "expected a number from 0 to 1, got 1.1"),
        ("jitter_retry_interval: .nan", "expected a number from 0 to 1, got nan"),
        ("retention: 7", "expected an ISO 8601 duration such as P1W, P1D, PT6H or PT0.5S, got 7"),
        ("retention: week", "expected an ISO 8601 duration such as P1W, P1D, PT6H or PT0.5S, got 'week'"),
        ("deletion_batch_size: 0", "expected a whole number from 1 up, got 0"),
        (
            "deletion_sleep_time: -0.5",
            "expected seconds (0 or more), or an ISO 8601 duration such as PT10S, got -0.5",
        ),
        ("retry_strategies: {}", "expected a list, got a mapping"),
        ("transports: log", "expected a mapping (name: arguments) or a list of mappings (each with class), got 'log'"),
    ],
)
def test_a_wrong_value_of_a_box_is_reported_likewise(folder: Folder, line: str, message: str) -> None:
    key = line.split(":", maxsplit=1)[0]
    assert folder.problems(f"outbox_items:\n  a_item:\n    {line}\n") == {f"outbox_items.a_item.{key}": message}


@pytest.mark.parametrize(
    ("text", "path", "guess"),
    [
        ("buckets_size: 3", "buckets_size", "did you mean bucket_size?"),
        ("poller: {rate_limits: 3}", "poller.rate_limits", "did you mean rate_limit?"),
        ("outbox_items: {a_item: {transport: }}", "", ""),
        ("outbox_items: {a_item: {max_retrys: 3}}", "outbox_items.a_item.max_retrys", "did you mean max_retries?"),
        ("inbox_items: {a_item: {sources: {}}}", "inbox_items.a_item.sources", "did you mean source?"),
        ("outbox_items: {a_item: {source: {}}}", "outbox_items.a_item.source", "expected one of"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_known_one(folder: Folder, text: str, path: str, guess: str) -> None:
    problems = folder.problems(text)
    assert list(problems) == ([path] if path else [])
    if path:
        assert problems[path].startswith(f"unknown key; {guess}")


@pytest.mark.parametrize(
    ("written", "order"),
    [("true", "bucket"), ("bucket", "bucket"), ("key", "key"), ("false", "none"), ("'true'", "bucket"), ("", "none")],
)
def test_strict_order_is_a_flag_or_a_word(folder: Folder, written: str, order: str) -> None:
    settings = folder.settings(f"outbox_items: {{a_item: {{strict_order: {written}}}}}")
    assert settings.boxes["a_item"].strict_order is StrictOrder(order)


@pytest.mark.parametrize(
    ("given", "order"), [("yes", "bucket"), ("On", "bucket"), ("1", "bucket"), ("no", "none"), ("0", "none")]
)
def test_strict_order_takes_from_a_variable_what_every_flag_takes(folder: Folder, given: str, order: str) -> None:
    folder.environ["STRICT"] = given
    settings = folder.settings("outbox_items: {a_item: {strict_order: '${STRICT}'}}")
    assert settings.boxes["a_item"].strict_order is StrictOrder(order)


@pytest.mark.parametrize(
    ("key", "guess"),
    [("threads", None), ("strict", None), ("outbox", "outbox_items"), ("bucketsize", "bucket_size"), ("workers", None)],
)
def test_a_key_is_guessed_only_where_it_is_near(folder: Folder, key: str, guess: str | None) -> None:
    said = folder.problems(f"{key}: 1")[key]
    assert said.startswith(f"unknown key; did you mean {guess}?" if guess else "unknown key; expected one of")


def test_seconds_may_be_written_as_a_duration(folder: Folder) -> None:
    settings = folder.settings("outbox_items: {a_item: {minimal_retry_interval: PT1M, deletion_sleep_time: 2}}")
    box = settings.boxes["a_item"]
    assert (box.minimal_retry_interval, box.deletion_sleep_time) == (timedelta(minutes=1), timedelta(seconds=2))


@pytest.mark.parametrize(
    "url",
    [
        *("redis://h", "redis://h/", "redis://h/1", "rediss://u:p@h:6380/0", "unix:///run/redis.sock?db=1"),
        *("redis://h?db=1&username=u&password=p@q", "redis://:1%2F2%3F3%234%40@h:6379/0"),
    ],
)
def test_redis_is_reached_by_all_its_urls(folder: Folder, url: str) -> None:
    assert folder.settings(f"redis: {{url: '{url}'}}").redis.url == url


@pytest.mark.parametrize("url", ["redis://h/staging", "redis://h:6379/1/2", "rediss://h/-1"])
def test_the_database_of_a_redis_is_a_number(folder: Folder, url: str) -> None:
    said = folder.problems(f"redis: {{url: '{url}'}}")["redis.url"]
    assert said == f"expected a number for the database, such as redis://host:6379/3, got '{url}'"


@pytest.mark.parametrize("sign", ["/", "?", "#"])
@pytest.mark.parametrize("start", ["redis://:", "rediss://u:", "unix://u:"])
def test_a_redis_password_is_not_cut_off_after_digits_that_may_be_a_port(folder: Folder, start: str, sign: str) -> None:
    url = f"{start}12{sign}hunter2@h:6379/0"
    said = folder.problems(f"redis: {{url: '{url}'}}")["redis.url"]
    assert said.startswith("expected %2F %3F %23 %40 where the password has / ? # @")
    assert "12" not in said.replace("127.0.0.1", "")
    assert "hunter" not in said


@pytest.mark.parametrize("length", ["P1001Y", "P9999Y", "P99999999999Y"])
def test_no_length_of_time_goes_back_beyond_the_calendar(folder: Folder, length: str) -> None:
    problems = folder.problems(
        f"outbox_items: {{a_item: {{retention: {length}}}}}\nprocessor: {{general_timeout: {length}}}\n"
        "poller: {rate_interval: 1e+14}"
    )
    assert set(problems) == {"outbox_items.a_item.retention", "processor.general_timeout", "poller.rate_interval"}
    assert all(message.startswith("expected at most P1000Y") for message in problems.values())
    assert not folder.problems("outbox_items: {a_item: {retention: P1000Y}}")


@pytest.mark.parametrize("sentinels", ["[a:26379, b:26379]", "'a:26379, b:26379'"])
def test_sentinels_are_a_list_or_text_with_commas(folder: Folder, sentinels: str) -> None:
    settings = folder.settings(f"redis: {{sentinels: {sentinels}, master_name: main, password: x}}")
    assert settings.redis.sentinels == ("a:26379", "b:26379")


@pytest.mark.parametrize(
    ("url", "message"),
    [("postgres://h/db", "postgresql+psycopg://"), ("localhost:5432", "expected a SQLAlchemy URL such as")],
)
def test_a_database_url_is_one_of_sqlalchemy(folder: Folder, url: str, message: str) -> None:
    assert message in folder.problems(f"database: {{url: '{url}'}}")["database.url"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:hunter2@h:port/n", "expected a number up to 65535 for the port"),
        ("postgresql://u:hunter2@h:/n", "expected a number up to 65535 for the port"),
        ("postgresql://u:hunter2@h:99999/n", "expected a number up to 65535 for the port"),
        ("mysql+pymysql://u:hunter2?2@2@h/n", "expected %40 where the password has an @"),
    ],
)
def test_a_database_url_that_leads_nowhere_is_found_before_the_start(folder: Folder, url: str, message: str) -> None:
    problem = folder.problems(f"database: {{url: '{url}'}}")["database.url"]
    assert problem.startswith(message)
    assert "hunter2" not in problem


@pytest.mark.parametrize("backend", ["postgresql", "mysql"])
@pytest.mark.parametrize("rest", ["u:p[x@h/n", "u:p/x?#y@h:1/n", "u@[::1]:1/n", "/n", "h/n?a=b@c:d"])
def test_a_password_may_have_what_a_web_address_may_not(folder: Folder, backend: str, rest: str) -> None:
    url = f"{backend}://{rest}"
    text = "outbox_items: {a_item: {table: t}, b_item: {table: n.t}}"
    problems = folder.problems(f"database: {{url: '{url}'}}\n{text}")
    assert list(problems) == (["outbox_items.b_item.table"] if backend == "mysql" else [])


def test_a_url_from_a_file_may_end_in_a_line_break(folder: Folder) -> None:
    folder.environ.update(DATABASE_URL="postgresql://h/n\n", REDIS_URL="redis://h/1\n")
    settings = folder.settings("")
    assert (settings.database.url, settings.redis.url) == ("postgresql://h/n", "redis://h/1")


def test_a_problem_with_a_secret_does_not_tell_it(folder: Folder) -> None:
    problems = folder.problems("redis: {password: 12345}\ndatabase: {url: 'me:hunter2@host'}")
    assert "12345" not in problems["redis.password"]
    assert "hunter2" not in str(folder.problems("redis: {url: 'http://me:hunter2@host'}"))


def test_transports_are_a_mapping_from_name_to_arguments(folder: Folder) -> None:
    settings = folder.settings(
        """
        outbox_items:
          a_item:
            transports:
              produce: {class: shop.Produce, event_name: created, disposable: true, topic: t, name: n}
              log:
        """
    )
    produce, log = settings.boxes["a_item"].transports.values()
    assert (produce.name, produce.class_name, produce.event_name) == ("produce", "shop.Produce", "created")
    assert (produce.disposable, produce.arguments) == (True, {"topic": "t", "name": "n"})
    assert (log.name, log.class_name, log.event_name, log.disposable, log.arguments) == ("log", "log", None, None, {})


def test_transports_in_a_list_each_need_a_class(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {transports: [{class: log}, {event_name: x}, 5, {class: 7}]}}")
    assert problems == {
        "outbox_items.a_item.transports[1].class": "missing: this key is required",
        "outbox_items.a_item.transports[2]": "expected a mapping (key: value), got 5",
        "outbox_items.a_item.transports[3].class": "expected text (put it in quotes), got 7",
    }


def test_an_inbox_box_may_have_a_kafka_source(folder: Folder) -> None:
    problems = folder.problems("inbox_items: {a_item: {source: {kafka: {topics: [], concurrency: 0}}}}")
    base = "inbox_items.a_item.source.kafka"
    assert problems == {
        f"{base}.topics": "expected at least one, got a list",
        f"{base}.group": "missing: this key is required",
        f"{base}.concurrency": "expected a whole number from 1 up, got 0",
    }


def test_many_mistakes_in_one_section_hide_none_beside_it(folder: Folder) -> None:
    source = "{kafka: {concurrency: 0, config: 5}}"
    problems = folder.problems(
        f"inbox_items: {{a_item: {{source: {source}, retention: PT1H, transports: {{nope: }}}}}}"
    )
    assert {path.removeprefix("inbox_items.a_item.") for path in problems} == {
        "source.kafka.topics",
        "source.kafka.group",
        "source.kafka.concurrency",
        "source.kafka.config",
        "retention",
        "transports.nope.class",
    }
