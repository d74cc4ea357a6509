"""From a line of ``transports`` to something that makes the transport."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from boxengine.engine.delivering.calls.pipeline import TransportSpec
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
        (
            f"{SHOP}.Ready: {{disposible: true}}",
            f"{SHOP}.Ready.disposible",
            f"unknown key; did you mean disposable? expected no arguments (the arguments of {SHOP}.Ready)",
        ),
        (f"{SHOP}.Ready: {{colour: red}}", f"{SHOP}.Ready.colour", "unknown key; expected no arguments"),
        (
            "log: {evnt_name: paid}",
            "log.evnt_name",
            "did you mean event_name? expected one of level (the arguments of log)",
        ),
        ("log: {timout: 5}", "log.timout", "did you mean timeout?"),
        ("kafka: {}", "kafka.topic", "missing: kafka requires this argument"),
        ("kafka: {topic: t, producers: 2}", "kafka.producers", "max_retries, required_acks, topic (the"),
        ("produce_message: {topic: x}", "produce_message.class", "no transport is called 'produce_message'"),
        (f"{SHOP}.Lgo: ", f"{SHOP}.Lgo.class", "has no 'Lgo'"),
        (f"x: {{class: {SHOP}.broken.X}}", "x.class", "raised ZeroDivisionError: on purpose"),
        (f"x: {{class: {SHOP}.NoTransport}}", "x.class", "has neither __call__(item, payload) nor call_batch(items)"),
        (f"x: {{class: {SHOP}.Unfinished}}", "x.class", "is abstract, so nothing can be made of it: it lacks topic"),
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


def test_a_name_alone_in_a_list_is_told_to_be_a_class(folder: Folder) -> None:
    problems = folder.problems(f"outbox_items: {{a_item: {{transports: [{SHOP}.deliver, 3]}}}}")
    base = "outbox_items.a_item.transports"
    assert problems == {
        f"{base}[0]": f"expected a mapping such as {{class: {SHOP}.deliver}}, got '{SHOP}.deliver'",
        f"{base}[1]": "expected a mapping (key: value), got 3",
    }


def test_a_broken_entry_of_a_list_hides_no_mistake_in_the_others(folder: Folder) -> None:
    problems = folder.problems(
        "outbox_items: {a_item: {transports: [{event_name: x}, {class: log, lvl: 1}, {class: '${NO}'}, {class: no.such}]}}"
    )
    base = "outbox_items.a_item.transports"
    assert list(problems) == [f"{base}[2].class", f"{base}[0].class", f"{base}[1].lvl", f"{base}[3].class"]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes modules into a folder on the path, each with classes of the names given; forgets them afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)

    def write(**classes: str) -> None:
        for module, names in classes.items():
            path = tmp_path.joinpath(*module.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"class {n}:\n    def __call__(self, item, payload): ...\n" for n in names.split()))
        importlib.invalidate_caches()

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_an_underscored_name_is_a_class_in_a_module_of_app(folder: Folder, modules: Callable[..., None]) -> None:
    modules(parcels="ProduceMessage PostHTTP", labels="Printer")
    made = only_transport(folder, "{produce_message: }", above="app: [labels, parcels]").build()
    assert f"{type(made).__module__}.{type(made).__name__}" == "parcels.ProduceMessage"
    made = only_transport(folder, "{post_http: }", above="app: [labels, parcels]").build()
    assert type(made).__name__ == "PostHTTP"


@pytest.mark.parametrize(
    ("written", "name", "found"),
    [
        ({"produce_message": "ProduceMessage"}, "produce_message", "produce_message.ProduceMessage"),
        ({"web__produce_message": "ProduceMessage"}, "produce_message", "web.produce_message.ProduceMessage"),
        ({"web__mails": "Announce"}, "mails/announce", "web.mails.Announce"),
        ({"mails__announce": "Announce"}, "mails/announce", "mails.announce.Announce"),
        ({"web__announce": "Announce", "announce": "Announce"}, "announce", "web.announce.Announce"),
    ],
)
def test_an_underscored_name_may_be_that_of_a_module(
    folder: Folder, modules: Callable[..., None], written: dict[str, str], name: str, found: str
) -> None:
    modules(web____init__="", **written)
    made = type(only_transport(folder, f"{{{name}: }}", above="app: web").build())
    assert f"{made.__module__}.{made.__name__}" == found


def test_an_underscored_name_that_fits_two_classes_is_refused(folder: Folder, modules: Callable[..., None]) -> None:
    modules(one="Announce", two="Announce")
    problems = folder.problems("app: [one, two]\noutbox_items: {a_item: {transports: {announce: }}}")
    assert problems == {
        "outbox_items.a_item.transports.announce.class": "'announce' may mean one.Announce and two.Announce; "
        "write the dotted path of the one that is meant"
    }


def test_an_underscored_name_that_nobody_has_says_where_it_was_looked_for(
    folder: Folder, modules: Callable[..., None]
) -> None:
    modules(one="Announce")
    problems = folder.problems("app: one\noutbox_items: {a_item: {transports: {anounce: }}}")
    assert problems["outbox_items.a_item.transports.anounce.class"] == (
        "no transport is called 'anounce'; expected one of http, kafka, log, a dotted path such as "
        "package.module.Anounce, or a class Anounce in one of the modules one, one.anounce, anounce"
    )


def test_a_module_that_is_looked_into_twice_is_named_once(folder: Folder, modules: Callable[..., None]) -> None:
    modules(one="Announce")
    problems = folder.problems("app: one\noutbox_items: {a_item: {transports: {one: }}}")
    assert problems["outbox_items.a_item.transports.one.class"].endswith("in one of the modules one, one.one")


def test_a_module_of_app_that_cannot_be_imported_is_reported_once(
    folder: Folder, modules: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "sick.py").write_text("1 / 0")
    problems = folder.problems("app: sick\noutbox_items: {a_item: {model: sick.A, transports: {announce: , sick.B: }}}")
    assert list(problems) == ["app[0]"]


def test_the_kafka_gem_of_sbmt_outbox_is_kafka(folder: Folder) -> None:
    made = only_transport(
        folder,
        "{sbmt/kafka_producer: {topic: t, timeout: 7, kafka: {servers: 'b:1', required_acks: -1, max_retries: 2, "
        "ack_timeout: 1, connect_timeout: 0.5, retry_backoff: 2, kafka_config: {linger.ms: 9}, compression.type: gzip}}}",
    ).build()
    assert isinstance(made, shop.Kafka)
    assert (made.topic, made.bootstrap_servers, made.delivery_timeout) == ("t", "b:1", 7)
    assert (made.required_acks, made.max_retries) == (-1, 2)
    assert made.config == {
        "request.timeout.ms": 1000,
        "socket.connection.setup.timeout.ms": 500,
        "retry.backoff.ms": 2000,
        "linger.ms": 9,
        "compression.type": "gzip",
    }


def test_times_of_that_gem_may_come_from_variables(folder: Folder) -> None:
    folder.environ["ACK"] = "2.5"
    made = only_transport(
        folder, "{kafka: {topic: t, kafka: {ack_timeout: '${ACK}', connect_timeout: '${C:-1}', retry_backoff: }}}"
    ).build()
    assert made.config == {"request.timeout.ms": 2500, "socket.connection.setup.timeout.ms": 1000}


def test_a_time_of_that_gem_that_is_no_number_is_said_to_be_one(folder: Folder) -> None:
    problems = folder.problems("outbox_items: {a_item: {transports: {kafka: {topic: t, kafka: {ack_timeout: soon}}}}}")
    path = "outbox_items.a_item.transports.kafka.kafka.ack_timeout"
    assert problems == {path: "expected a number from 0 up, got 'soon'"}


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


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize(
    ("above", "own", "expected"),
    [
        ("config: {SERVERS: 'a:1,b:1'}", "", "a:1,b:1"),
        ("config: {SERVERS: 'a:1'}", "bootstrap_servers: 'b:1,c:1'", "b:1,c:1"),
        ("bootstrap_servers: a:1", "config: {SERVERS: 'b:1'}", "b:1"),
        ("bootstrap_servers: 'a:1', config: {SERVERS: 'b:1'}", "config: {linger.ms: 1}", "b:1"),
    ],
)
def test_servers_among_librdkafkas_settings_are_the_servers_of_transports_and_sources(
    folder: Folder, name: str, above: str, own: str, expected: str
) -> None:
    written = f"kafka: {{{above}}}".replace("SERVERS", name)
    keys = own.replace("SERVERS", name)
    made = only_transport(folder, f"{{kafka: {{topic: t, {keys}}}}}", above=written).build()
    assert (made.bootstrap_servers, name in (made.config or {})) == (expected, False)
    source = f"{{kafka: {{topics: t, group: g, {keys}}}}}"
    found = folder.resolved(f"{written}\ninbox_items: {{a_item: {{source: {source}}}}}").sources["a_item"]
    assert (found["bootstrap_servers"], name in found.get("config", {})) == (expected, False)


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


@pytest.mark.parametrize("topics", ["'a, b'", "[a, b]", "'${TOPICS}'"])
def test_topics_are_a_list_or_text_with_commas(folder: Folder, topics: str) -> None:
    folder.environ["TOPICS"] = "a,b"
    settings = folder.settings(f"inbox_items: {{a_item: {{source: {{kafka: {{topics: {topics}, group: g}}}}}}}}")
    source = settings.inbox_items["a_item"].source
    assert source is not None
    assert source.kafka.topics == ("a", "b")


@pytest.mark.parametrize("pattern", ["'^a{1,2}'", "['^a{1,2}']"])
def test_a_pattern_of_topics_may_have_commas(folder: Folder, pattern: str) -> None:
    source = f"{{kafka: {{topics: {pattern}, group: g}}}}"
    assert not folder.problems(f"{KAFKA}inbox_items: {{a_item: {{source: {source}}}}}")


def test_what_no_topic_can_be_called_is_refused(folder: Folder) -> None:
    source = "{kafka: {topics: [ok, 'a, b'], group: g}}"
    problems = folder.problems(f"{KAFKA}inbox_items: {{a_item: {{source: {source}}}}}")
    assert list(problems) == ["inbox_items.a_item.source.kafka.topics[1]"]


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
