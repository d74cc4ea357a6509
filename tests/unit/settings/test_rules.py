"""Contradictions between keys, one test for each."""

from __future__ import annotations

import pytest

from boxengine.settings import notices
from tests.unit.settings.folder import Folder


@pytest.mark.parametrize("order", ["true", "bucket", "key"])
def test_strict_order_contradicts_retry_strategies(folder: Folder, order: str) -> None:
    problems = folder.problems(
        f"outbox_items: {{a_item: {{strict_order: {order}, retry_strategies: [exponential_backoff]}}}}"
    )
    assert "contradicts strict_order" in problems["outbox_items.a_item.retry_strategies"]
    assert len(problems) == 1


def test_strict_order_with_an_empty_list_of_strategies_is_no_contradiction(folder: Folder) -> None:
    assert folder.problems("outbox_items: {a_item: {strict_order: true, retry_strategies: []}}") == {}


def test_a_retention_under_its_minimum_is_refused(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {retention: PT6H}}")
    message = "PT6H is shorter than min_retention_period (P1D); expected at least that"
    assert problems == {"outbox_items.a_item.retention": message}


def test_a_delivered_retention_under_its_minimum_is_refused(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {retention_delivered_items: PT10M}}")
    assert (
        "PT10M is shorter than delivered_min_retention_period (PT1H)"
        in problems["outbox_items.a_item.retention_delivered_items"]
    )


def test_an_inherited_delivered_retention_under_its_minimum_is_refused(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {retention: PT10M, min_retention_period: PT1M}}")
    assert "delivered_min_retention_period (PT1H)" in problems["outbox_items.a_item.retention"]


def test_delivered_items_may_be_deleted_at_once(folder: Folder) -> None:
    assert folder.problems("outbox_items: {a_item: {retention_delivered_items: PT0S}}") == {}


def test_a_name_used_in_outbox_and_inbox_is_refused(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: }\ninbox_items: {a_item: }")
    assert list(problems) == ["inbox_items.a_item"]
    assert "used in outbox_items too" in problems["inbox_items.a_item"]


def test_two_boxes_on_one_table_are_refused(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {combined/outbox_item: , other_item: {table: combined_outbox_items}}")
    assert problems == {
        "outbox_items.other_item.table": "works on table 'combined_outbox_items', "
        "as does outbox_items.combined/outbox_item; expected a table for each box"
    }


def test_an_unknown_retry_strategy_is_refused_with_the_known_ones(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {retry_strategies: [no_delay, exponential]}}")
    assert problems == {
        "outbox_items.a_item.retry_strategies[1]": "no retry strategy is called 'exponential'; "
        "expected exponential_backoff, latest_available, compacted_log, no_delay, or a dotted path"
    }


def test_an_unknown_partition_strategy_is_refused_with_the_known_ones(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {partition_strategy: modulo}}")
    assert problems == {
        "outbox_items.a_item.partition_strategy": "no partition strategy is called 'modulo'; "
        "expected number, hash, or a dotted path"
    }


def test_a_minimal_pause_over_the_maximal_one_is_refused(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {minimal_retry_interval: 700}}")
    message = "700 s is longer than maximal_retry_interval (600 s)"
    assert problems == {"outbox_items.a_item.minimal_retry_interval": message}


def test_a_longest_pause_of_a_circuit_under_the_first_one_is_refused(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {circuit_breaker: {longest_pause: 0.2}}}")
    assert problems == {"outbox_items.a_item.circuit_breaker.longest_pause": "0.2 s is shorter than pause (1 s)"}
    assert not folder.problems("outbox_items: {a_item: {circuit_breaker: {pause: 60}}}")


def test_a_broken_value_is_reported_once_and_not_again_by_a_rule(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {minimal_retry_interval: 700, maximal_retry_interval: long}}")
    assert list(problems) == ["outbox_items.a_item.maximal_retry_interval"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("OrderItem", "such as order_item"), ("order-item", "such as order_item"), ("9items", "with / for a namespace")],
)
def test_a_box_name_is_an_underscored_class_name(folder: Folder, name: str, hint: str) -> None:
    assert folder.problems(f"outbox_items: {{{name}: }}")[f"outbox_items.{name}"].endswith(hint)


def test_a_cutoff_beyond_the_lease_is_refused(folder: Folder) -> None:
    problems = folder.problems("processor: {general_timeout: 60}")
    assert problems["processor.cutoff_timeout"].startswith("90 s is longer than general_timeout (60 s)")


def test_a_smallest_queue_over_the_largest_is_refused(folder: Folder) -> None:
    problems = folder.problems("poller: {max_queue_size: 5}")
    assert problems == {"poller.min_queue_size": "10 is more than max_queue_size (5)"}


def test_nothing_to_delete_in_is_refused(folder: Folder) -> None:
    assert list(folder.problems("outbox_items: {a_item: {deletion_time_window: PT0S}}")) == [
        "outbox_items.a_item.deletion_time_window"
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("database: {replica_url: 'postgresql+psycopg://h/db'}", "database.replica_url"),
        ("redis: {sentinels: [a:1]}", "redis.sentinels"),
        ("redis: {master_name: main}", "redis.master_name"),
        ("redis: {sentinels: [a:1], master_name: main, cluster: true}", "redis.cluster"),
        ("redis: {cluster: true}", "redis.cluster"),
        ("redis: {sentinels: [a:1], master_name: main, url: 'redis://h'}", "redis.url"),
        ("redis: {url: 'redis://h', ssl: true}", "redis.ssl"),
        ("redis: {ssl: true, ssl_ca_certs: /ca.pem}", "redis.ssl"),
        ("redis: {url: 'redis://h/0', db: 3}", "redis.db"),
        ("redis: {username: me}", "redis.username"),
        ("redis: {password: secret}", "redis.password"),
        ("redis: {sentinel_username: me}", "redis.sentinel_username"),
        ("redis: {sentinel_password: secret}", "redis.sentinel_password"),
    ],
)
def test_servers_described_by_halves_or_twice_are_refused(folder: Folder, text: str, path: str) -> None:
    assert list(folder.problems(text)) == [path]


def test_what_only_sentinel_has_is_to_be_written_into_the_url(folder: Folder) -> None:
    said = folder.problems("redis: {db: 3}")["redis.db"]
    assert said == (
        "has a meaning only with redis.sentinels; write it into redis.url (rediss://user:password@host:port/3)"
    )
    folder.settings("redis: {url: 'rediss://me:secret@h/3', db: 0, ssl: false, password: }")


@pytest.mark.parametrize(
    ("box", "path"),
    [
        ("{partition_size: 2, transports: {log: }}", "outbox_items.a_item.partition_size"),
        ("{strict_order: true, max_retries: 3, transports: {log: }}", "outbox_items.a_item.max_retries"),
        (
            "{max_retries: 3, retry_strategies: [compacted_log], transports: {log: }}",
            "outbox_items.a_item.retry_strategies",
        ),
        (
            "{max_retries: 3, retry_strategies: [no_delay, compacted_log], retention_delivered_items: PT0S, transports: {log: }}",
            "outbox_items.a_item.retention_delivered_items",
        ),
        ("{}", "outbox_items.a_item.transports"),
        ("{transports: {http: {url: http://h, timeout: 180}}}", "outbox_items.a_item.transports.http.timeout"),
        (
            "{transports: [{class: kafka, topic: t, delivery_timeout: 200}]}",
            "outbox_items.a_item.transports[0].delivery_timeout",
        ),
    ],
)
def test_what_is_probably_not_meant_is_a_notice_and_no_error(folder: Folder, box: str, path: str) -> None:
    settings = folder.settings(f"outbox_items: {{a_item: {box}}}")
    assert [(notice.file, notice.path) for notice in notices(settings)] == [("outbox.yml", path)]


@pytest.mark.parametrize(("delivered", "told"), [("PT0S", True), ("P1D", False)])
def test_an_inbox_that_forgets_at_once_what_it_has_delivered_is_a_notice(
    folder: Folder, delivered: str, told: bool
) -> None:
    source = "{kafka: {topics: t, group: g, bootstrap_servers: 'a:1'}}"
    box = f"{{source: {source}, retention_delivered_items: {delivered}, transports: {{log: }}}}"
    found = notices(folder.settings(f"inbox_items: {{a_item: {box}}}"))
    assert [notice.path for notice in found] == ["inbox_items.a_item.retention_delivered_items"] * told


@pytest.mark.parametrize("pausing", ["exponential_backoff", "no_delay", "json.dumps"])
def test_strategies_of_which_one_says_when_to_retry_are_no_notice(folder: Folder, pausing: str) -> None:
    box = f"{{max_retries: 3, retry_strategies: [{pausing}, latest_available], transports: {{log: }}}}"
    assert notices(folder.settings(f"outbox_items: {{a_item: {box}}}")) == []


@pytest.mark.parametrize(
    ("console", "path"),
    [
        ("{read_token: same, operate_token: same}", "console.read_token"),
        ("{operate_token: t, trace_url: 'https://traces.example/{traceid}'}", "console.trace_url"),
        ("{read_token: a, operate_token: b, trace_url: 'https://traces.example/{trace_id}'}", None),
    ],
)
def test_a_console_that_gives_more_or_less_than_it_says_is_a_notice(
    folder: Folder, console: str, path: str | None
) -> None:
    settings = folder.settings(f"console: {console}\noutbox_items: {{a_item: {{transports: {{log: }}}}}}")
    assert [notice.path for notice in notices(settings)] == ([] if path is None else [path])


@pytest.mark.parametrize(
    "wrong",
    ["https://console.example", "console.example:8443", "console.example/boxes", "*", "*.example", ".example", "::1"],
)
def test_what_no_browser_sends_as_the_name_of_a_host_is_refused(folder: Folder, wrong: str) -> None:
    problems = folder.problems(f"console: {{allowed_hosts: [console.example, {wrong!r}]}}")
    assert list(problems) == ["console.allowed_hosts[1]"]
    assert "without" in problems["console.allowed_hosts[1]"]


def test_names_of_hosts_are_names_or_addresses(folder: Folder) -> None:
    folder.environ["HOSTS"] = "Console.example, 10.0.0.5,[2001:db8::1] , console_1"
    hosts = folder.settings("console: {allowed_hosts: '${HOSTS}'}").console.allowed_hosts
    assert hosts == ("Console.example", "10.0.0.5", "[2001:db8::1]", "console_1")


def test_a_token_from_a_file_has_no_line_break(folder: Folder) -> None:
    folder.environ |= {"OPERATE": "one\n", "READ": "two\r\n"}
    console = folder.settings("console: {operate_token: '${OPERATE}', read_token: '${READ}'}").console
    assert (console.operate_token, console.read_token) == ("one", "two")


def test_a_section_without_boxes_is_a_notice_that_says_what_default_is_not(folder: Folder) -> None:
    settings = folder.settings(
        "default: {outbox_items: {a_item: {transports: {log: }}}}\ndevelopment: {bucket_size: 2}"
    )
    [notice] = notices(settings)
    assert notice.path == "outbox_items"
    assert notice.message.endswith("a section takes nothing over from default unless it says <<: *default")
    assert not notices(folder.settings("job_items: {a_job: {tasks: {t: json.dumps}}}"))


TWO_SOURCES = """
kafka: {{bootstrap_servers: "a:1,b:1"}}
inbox_items:
  one_item: {{transports: {{log: }}, source: {{kafka: {{topics: {one}, group: {group}}}}}}}
  two_item: {{transports: {{log: }}, source: {{kafka: {{topics: {two}, group: g{servers}}}}}}}
"""
GROUP = "inbox_items.two_item.source.kafka.group"


@pytest.mark.parametrize(
    ("one", "two", "group", "servers", "refused"),
    [
        ("t", "t", "g", "", True),
        ("[s, t]", "[t, u]", "g", "", True),
        ("t", "t", "g", ", bootstrap_servers: 'b:1'", True),
        ("^t.*", "tea", "g", "", True),
        ("tea", "^t.*", "g", "", True),
        ("'^coffee|tea$'", "green-tea", "g", "", True),
        ("^t.*", "^tea", "g", "", False),
        ("t", "u", "g", "", False),
        ("t", "t", "h", "", False),
        ("t", "t", "g", ", bootstrap_servers: 'c:1'", False),
        ("^t.*", "coffee", "g", "", False),
        ("^(", "coffee", "g", "", False),
    ],
)
def test_two_sources_do_not_share_a_topic_in_one_group(
    folder: Folder, one: str, two: str, group: str, servers: str, *, refused: bool
) -> None:
    problems = folder.problems(TWO_SOURCES.format(one=one, two=two, group=group, servers=servers))
    assert list(problems) == ([GROUP] if refused else [])
    if refused:
        assert "reads topic" in problems[GROUP]
        assert "for inbox_items.one_item too" in problems[GROUP]


@pytest.mark.parametrize(("url", "refused"), [("mysql://h/shop", True), ("mysql://h/other", False)])
def test_on_mysql_a_database_is_the_schema_of_a_table(folder: Folder, url: str, *, refused: bool) -> None:
    problems = folder.problems(
        f"database: {{url: '{url}'}}\noutbox_items: {{a_item: {{table: t}}, b_item: {{table: shop.t}}}}"
    )
    assert list(problems) == (["outbox_items.b_item.table"] if refused else [])


def test_a_rule_that_hides_payloads_of_no_box_is_refused(folder: Folder) -> None:
    boxes = "outbox_items: {a_item: {storage: log, subscriptions: {b: {}}}}\njob_items: {c_job: {}}\n"
    assert not folder.problems(f"{boxes}console: {{hide: {{a_item: true, a_item.b: true, c_job: [d], '*': [e]}}}}")
    problems = folder.problems(f"{boxes}console: {{hide: {{a_items: true}}}}")
    assert list(problems) == ["console.hide.a_items"]
    assert "known: a_item, a_item.b, c_job" in problems["console.hide.a_items"]


def test_a_rule_that_hides_payloads_of_a_broken_box_is_no_second_mistake(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: []}\nconsole: {hide: {a_item: true}}")
    assert list(problems) == ["outbox_items.a_item"]
