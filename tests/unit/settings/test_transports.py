"""From a line of ``transports`` to something that makes the transport."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.engine.pipeline import TransportSpec
from tests.unit.settings import shop
from tests.unit.settings.folder import Folder

SHOP = "tests.unit.settings.shop"


def only_transport(folder: Folder, transports: str, *, above: str = "") -> TransportSpec:
    resolved = folder.resolved(f"{above}\noutbox_items: {{a_item: {{transports: {transports}}}}}")
    [spec] = resolved.pipelines["a_item"].transports
    return spec


def test_a_built_in_is_known_by_its_short_name(folder: Folder) -> None:
    spec = only_transport(folder, "{log: {level: debug}}")
    assert (spec.name, spec.event_name, spec.disposable) == ("log", None, False)
    made = spec.build()
    assert isinstance(made, shop.Log)
    assert made.level == "debug"


def test_each_build_makes_a_new_instance(folder: Folder) -> None:
    spec = only_transport(folder, "{log: }")
    assert spec.build() is not spec.build()


def test_a_class_is_named_by_its_dotted_path(folder: Folder) -> None:
    spec = only_transport(
        folder, f"{{produce: {{class: {SHOP}.Anything, event_name: created, name: x, arguments: y}}}}"
    )
    assert (spec.name, spec.event_name) == ("produce", "created")
    assert spec.build().arguments == {"name": "x", "arguments": "y"}


def test_transports_may_stand_in_a_list(folder: Folder) -> None:
    resolved = folder.resolved(
        f"outbox_items: {{a_item: {{transports: [{{class: log, event_name: a}}, {{class: {SHOP}.Anything, event_name: b}}]}}}}"
    )
    names = [(spec.name, spec.event_name) for spec in resolved.pipelines["a_item"].transports]
    assert names == [("log", "a"), (f"{SHOP}.Anything", "b")]


def test_disposable_comes_from_the_top_level_unless_the_transport_says_it(folder: Folder) -> None:
    assert only_transport(folder, "{log: }", above="disposable_transports: true").disposable
    assert not only_transport(folder, "{log: {disposable: false}}", above="disposable_transports: true").disposable


def test_no_transport_is_made_while_the_configuration_is_read(folder: Folder) -> None:
    spec = only_transport(folder, "{http: {url: x}}")
    with pytest.raises(AssertionError, match="made at the start"):
        spec.build()


def test_a_module_with_a_factory_is_used_through_it(folder: Folder) -> None:
    made = only_transport(folder, f"{{x: {{class: {SHOP}.factory, topic: orders}}}}").build()
    assert made.arguments == {"topic": "orders", "made_by": "factory"}


def test_a_function_is_the_transport_itself(folder: Folder) -> None:
    assert only_transport(folder, f"{{x: {{class: {SHOP}.deliver}}}}").build() is shop.deliver


def test_a_functions_arguments_are_given_at_each_call(folder: Folder) -> None:
    made = only_transport(folder, f"{{x: {{class: {SHOP}.deliver, loudly: true}}}}").build()
    assert made(None, b"") is True


def test_an_object_that_delivers_is_the_transport_itself(folder: Folder) -> None:
    assert only_transport(folder, f"{{x: {{class: {SHOP}.ready}}}}").build() is shop.ready


@pytest.mark.parametrize(
    ("transport", "key", "message"),
    [
        ("log: {lvl: 1}", "log.lvl", "unknown key; did you mean level? expected one of level (the arguments of log)"),
        ("kafka: {}", "kafka.topic", "missing: kafka requires this argument"),
        ("produce_message: {topic: x}", "produce_message.class", "no transport is called 'produce_message'"),
        (f"{SHOP}.Lgo: ", f"{SHOP}.Lgo.class", "has no 'Lgo'"),
        (f"x: {{class: {SHOP}.broken.X}}", "x.class", "raised ZeroDivisionError: on purpose"),
        (f"x: {{class: {SHOP}.NoTransport}}", "x.class", "has neither __call__(item, payload) nor call_batch(items)"),
        (f"x: {{class: {SHOP}.number_of_items}}", "x.class", "is int; expected a class or a callable"),
        (f"x: {{class: {SHOP}}}", "x.class", "a module without OutboxTransportFactory.build"),
        (f"x: {{class: {SHOP}.factory}}", "x.topic", "missing: "),
        (f"x: {{class: {SHOP}.deliver, laudly: 1}}", "x.laudly", "did you mean loudly?"),
        (f"x: {{class: {SHOP}.ready, loudly: 1}}", "x", "is an object and takes no arguments"),
        ("kafka: {topic: t, kafka: fast}", "kafka.kafka", "expected a mapping (key: value), got 'fast'"),
        ("kafka: {topic: t, kafka: {retries: 1}}", "kafka.kafka.retries", "did you mean max_retries?"),
    ],
)
def test_what_cannot_be_made_is_reported_at_its_key(folder: Folder, transport: str, key: str, message: str) -> None:
    problems = folder.problems(f"outbox_items:\n  a_item:\n    transports:\n      {transport}\n")
    assert list(problems) == [f"outbox_items.a_item.transports.{key}"]
    assert message in problems[f"outbox_items.a_item.transports.{key}"]


def test_a_broken_entry_of_a_list_hides_no_mistake_in_the_others(folder: Folder) -> None:
    problems = folder.problems(
        "outbox_items: {a_item: {transports: [{event_name: x}, {class: log, lvl: 1}, {class: '${NO}'}, {class: no.such}]}}"
    )
    base = "outbox_items.a_item.transports"
    assert list(problems) == [f"{base}[2].class", f"{base}[0].class", f"{base}[1].lvl", f"{base}[3].class"]


KAFKA = """
kafka:
  bootstrap_servers: [a:9092, b:9092]
  required_acks: -1
  max_retries: 1
  config: {linger.ms: 5, compression.type: zstd}
"""


def test_a_kafka_transport_has_the_defaults_of_the_top_level(folder: Folder) -> None:
    made = only_transport(folder, "{kafka: {topic: t, config: {linger.ms: 50}}}", above=KAFKA).build()
    assert (made.topic, made.bootstrap_servers) == ("t", "a:9092,b:9092")
    assert made.config == {"linger.ms": 50, "compression.type": "zstd"}
    assert (made.required_acks, made.max_retries) == (-1, 1)


def test_the_references_kafka_section_of_a_transport_is_understood(folder: Folder) -> None:
    made = only_transport(folder, "{kafka: {topic: t, kafka: {required_acks: 1}}}", above=KAFKA).build()
    assert (made.required_acks, made.max_retries) == (1, 1)


def test_acks_may_be_all(folder: Folder) -> None:
    made = only_transport(folder, "{kafka: {topic: t}}", above="kafka: {required_acks: all}").build()
    assert made.required_acks == -1


def test_other_transports_get_nothing_of_the_kafka_section(folder: Folder) -> None:
    assert only_transport(folder, f"{{x: {{class: {SHOP}.Anything}}}}", above=KAFKA).build().arguments == {}


def test_an_inbox_source_has_the_defaults_of_the_top_level(folder: Folder) -> None:
    source = "{kafka: {topics: payments, group: g, config: {linger.ms: 1}, dead_letter: {topic: lost}}}"
    resolved = folder.resolved(f"{KAFKA}\ninbox_items: {{a_item: {{source: {source}}}, b_item: }}")
    assert resolved.sources == {
        "a_item": {
            "bootstrap_servers": "a:9092,b:9092",
            "config": {"linger.ms": 1, "compression.type": "zstd"},
            "topics": ("payments",),
            "group": "g",
            "concurrency": 1,
            "batch_size": 500,
            "dead_letter": {"topic": "lost"},
        }
    }


def test_an_inbox_source_needs_servers_from_somewhere(folder: Folder) -> None:
    problems = folder.problems("inbox_items: {a_item: {source: {kafka: {topics: t, group: g}}}}")
    assert list(problems) == ["inbox_items.a_item.source.kafka.bootstrap_servers"]


def test_a_timeout_is_the_engines_where_the_class_takes_none(folder: Folder) -> None:
    spec = only_transport(folder, "{log: {timeout: 5}}")
    assert spec.timeout == timedelta(seconds=5)
    assert only_transport(folder, "{log: {timeout: PT0.5S}}").timeout == timedelta(seconds=0.5)
    assert only_transport(folder, "{log: {timeout: }}").timeout is None
    spec.build()


def test_a_timeout_goes_to_a_transport_that_has_its_own(folder: Folder) -> None:
    own = only_transport(folder, f"{{x: {{class: {SHOP}.Punctual, timeout: 5}}}}")
    assert (own.timeout, own.build().timeout) == (None, 5)
    anything = only_transport(folder, f"{{x: {{class: {SHOP}.Anything, timeout: 5}}}}")
    assert (anything.timeout, anything.build().arguments) == (None, {"timeout": 5})
    kafka = only_transport(folder, "{kafka: {topic: t, bootstrap_servers: a, timeout: 5}}")
    assert (kafka.timeout, kafka.build().delivery_timeout) == (None, 5.0)


def test_a_timeout_that_is_no_length_of_time_is_reported(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {transports: {log: {timeout: soon}}}}")
    assert problems == {
        "outbox_items.a_item.transports.log.timeout": "expected seconds (more than 0), or an ISO 8601 duration "
        "such as PT10S, got 'soon'"
    }
