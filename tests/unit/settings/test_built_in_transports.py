"""Arguments of built-in transports and sources that could not work are found while the configuration is read, each at its key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from boxengine.adapters.builtin import BUILTIN_TRANSPORTS, SOURCE_CHECKS
from boxengine.errors import ConfigurationError
from boxengine.settings import resolve
from tests.unit.settings.folder import Folder

SERVERS = "bootstrap_servers: 'b:1'"
NO_SERVERS = "bootstrap_servers is missing: expected as an argument of the transport, or in kafka at the top level"


def problems(folder: Folder, transport: str, *, above: str = "") -> Mapping[str, str]:
    """Message by key under the transport; empty: the transport itself."""
    settings = folder.settings(f"{above}\noutbox_items: {{a_item: {{transports: {{{transport}}}}}}}")
    try:
        resolve(settings, builtin_transports=BUILTIN_TRANSPORTS)
    except ConfigurationError as error:
        path = f"outbox_items.a_item.transports.{transport.partition(':')[0]}"
        return {each.path.removeprefix(path).lstrip("."): each.message for each in error.problems}
    return {}


class Made:
    """A serializer that only a worker may make."""

    def __init__(self) -> None:
        raise AssertionError("made while the configuration was read")

    def __call__(self, payload: Any, context: Any) -> None: ...


class Demanding:
    def __init__(self, registry: str) -> None: ...

    def __call__(self, payload: Any, context: Any) -> None: ...


class Silent: ...


def without_context(payload: Any) -> None: ...


async def awaited(payload: Any, context: Any) -> None: ...


class Awaited:
    async def __call__(self, payload: Any, context: Any) -> None: ...


class Static:
    @staticmethod
    def __call__(payload: Any, context: Any) -> None: ...


HOOK = "http: {url: 'https://h.example'"


@pytest.mark.parametrize(
    ("transport", "argument", "words"),
    [
        ("kafka: {topic: t}", "bootstrap_servers", NO_SERVERS),
        ("kafka: {topic: t, bootstrap_servers: []}", "bootstrap_servers", NO_SERVERS),
        (f"kafka: {{topic: 'a/b', {SERVERS}}}", "topic", "found '/' in it"),
        (f"kafka: {{topic: 'orders.{{event}}', {SERVERS}}}", "topic", "no item has 'event'"),
        (f"kafka: {{topic: t, key: '{{payload}}', {SERVERS}}}", "key", "no item has 'payload'"),
        (f"kafka: {{topic: t, format: avro, {SERVERS}}}", "format", "expected plain, cloudevents"),
        (f"kafka: {{topic: t, transactional: true, {SERVERS}}}", "transactional_id", "transactional needs"),
        (f"kafka: {{topic: t, required_acks: 0, {SERVERS}}}", "", "nothing could count as delivered"),
        (f"kafka: {{topic: t, delivery_timeout: 0, {SERVERS}}}", "", "must be more than 0"),
        (f"kafka: {{topic: t, delivery_timeout: 1.0e+30, {SERVERS}}}", "", "OverflowError"),
        ("http: {url: 'shop.example/hook'}", "url", "expected http://"),
        ("http: {url: 'https://h.example:70000/'}", "url", "is not understood"),
        ("http: {url: 'https://[::1/'}", "url", "is not understood"),
        ("http: {url: 'https://ключ.example/'}", "url", "write it as xn--"),
        ("http: {url: 'https://h.example', method: 'PO ST'}", "method", "expected a word such as POST"),
        ("http: {url: 'https://h.example', method: ''}", "method", "expected a word such as POST"),
        ("http: {url: 'https://h.example', headers: {A B: c}}", "headers", "expected letters, digits and hyphens"),
        ('http: {url: "https://h.example", headers: {A: "c\\nd"}}', "headers", "has a control character"),
        ("http: {url: 'https://h.example', headers: {A: true}}", "headers", "expected text (put it in quotes)"),
        ("http: {url: 'https://h.example', headers: {A: [b]}}", "headers", "expected text (put it in quotes)"),
        ('http: {url: "https://h.example", content_type: "a\\nb"}', "content_type", "has a control character"),
        ("http: {url: 'https://h.example', secret: whsk_eA}", "secret", "is for signatures v1a"),
        ("http: {url: 'https://h.example', format: avro}", "format", "expected plain, cloudevents"),
        ("redis_stream: {stream: ''}", "stream", "stream is empty"),
        ("redis_stream: {stream: '{event}'}", "stream", "no item has 'event'"),
        ("http: {url: 'https://h.example', concurrency: 0}", "concurrency", "must be at least 1"),
        ("http: {url: 'https://h.example', timeout: 0}", "timeout", "must be more than 0 seconds"),
        ("http: {url: 'https://h.example', key_file: k}", "key_file", "has a meaning only with cert_file"),
        ("http: {url: 'https://h.example', key_password: p}", "key_password", "has a meaning only with cert_file"),
        ("http: {url: ' HTTP://h.example', cert_file: c}", "cert_file", "has a meaning only with TLS"),
        ("redis_stream: {stream: s, timeout: 0}", "timeout", "must be more than 0 seconds"),
        ("redis_stream: {stream: s, maxlen: 0}", "maxlen", "must be at least 1"),
        ("redis_stream: {stream: s, url: 'http://r.example'}", "url", "expected redis://"),
        ("redis_stream: {stream: s, url: 'redis://:12/x@r.example'}", "url", "url is not understood"),
        ("redis_stream: {stream: s, url: 'redis://r.example/staging'}", "url", "the database is a number"),
        ("redis_stream: {stream: s, url: 'redis://r.example/0?foo=bar'}", "url", "redis-py refuses"),
        ("file: {path: ''}", "path", "expected the name of a file"),
        ("file: {path: 'items/'}", "path", "expected the name of a file"),
        ("redis_stream: {stream: s, serializer: no.such}", "serializer", "expected bytes, json or a dotted path"),
        ("http: {url: 'https://h.example', serializer: avro}", "serializer", "expected bytes, json or a dotted path"),
        (f"kafka: {{topic: t, serializer: json.dump_it, {SERVERS}}}", "serializer", "expected bytes, json or a dotted"),
        (
            f"{HOOK}, serializer: {__name__}.Demanding}}",
            "serializer",
            "takes arguments, and gets none: missing a required",
        ),
        (f"{HOOK}, serializer: {__name__}.Silent}}", "serializer", "is a class whose instances cannot be called"),
        (
            f"{HOOK}, serializer: {__name__}.without_context}}",
            "serializer",
            "is called as (payload, context): too many",
        ),
        (f"{HOOK}, serializer: {__name__}.HOOK}}", "serializer", "is str, which cannot be called"),
        (f"{HOOK}, serializer: {__name__}.awaited}}", "serializer", "is async def, whose code would never run"),
        (f"{HOOK}, serializer: {__name__}.Awaited}}", "serializer", "is async def, whose code would never run"),
        ("http: {url: 'https://h.example/{event_name}'}", "url", "no template is filled in here"),
        ("log: {level: loud}", "level", "'loud' is unknown"),
    ],
)
def test_what_could_not_work_is_reported_at_its_argument(
    folder: Folder, transport: str, argument: str, words: str
) -> None:
    found = problems(folder, transport)
    assert list(found) == [argument]
    assert words in found[argument]


@pytest.mark.parametrize(
    ("transport", "above"),
    [
        ("kafka: {topic: t}", "kafka: {bootstrap_servers: 'b:1'}"),
        ("kafka: {topic: t}", "kafka: {config: {bootstrap.servers: 'b:1'}}"),
        ("kafka: {topic: t, config: {metadata.broker.list: 'b:1'}}", ""),
        ("kafka: {topic: 't.{event_name}', key: '{options.key}', timeout: 5, kafka: {servers: 'b:1'}}", ""),
        ("http: {url: 'https://h.example', headers: {A: 1, B: 2.5, C: grün, D: 2022-11-28}, secret: [a, b]}", ""),
        ("http: {url: 'https://h.example', cert_file: c, key_file: k, key_password: p}", ""),
        ("redis_stream: {stream: 's.{event_name}', url: 'rediss://r.example'}", ""),
        ("file: {path: items.jsonl}", ""),
        (f"redis_stream: {{stream: s, serializer: {__name__}.Made}}", ""),
        (f"redis_stream: {{stream: s, serializer: {__name__}.Static}}", ""),
        ("log: {level: DEBUG}", ""),
    ],
)
def test_what_works_is_not_reported(folder: Folder, transport: str, above: str) -> None:
    assert problems(folder, transport, above=above) == {}


def test_all_that_is_wrong_with_a_transport_is_reported_at_once(folder: Folder) -> None:
    found = problems(folder, "kafka: {topic: 'a b', format: avro}")
    assert set(found) == {"topic", "format", "bootstrap_servers"}


@pytest.mark.parametrize(
    ("header", "value", "words"),
    [
        ("Authorization", "Bearer ключ", "credentials have no characters beyond ASCII"),
        ("X-Token", "k\udce4y", "has bytes that are no UTF-8"),
    ],
)
def test_a_header_from_a_variable_that_no_receiver_would_take_is_reported_without_its_value(
    folder: Folder, header: str, value: str, words: str
) -> None:
    folder.environ["TOKEN"] = value
    arguments: Any = f"{{url: 'https://h.example', headers: {{{header}: '${{TOKEN}}'}}}}"
    found = problems(folder, f"http: {arguments}")
    assert list(found) == ["headers"]
    assert words in found["headers"]
    assert value not in found["headers"]


@pytest.mark.parametrize(
    ("source", "argument", "words"),
    [
        ("config: {enable.auto.commit: true}", "config", "enable.auto.commit must be false"),
        ("config: {auto.offset.reset: error}", "config", "must be earliest or latest"),
        ("config: {group.id: other}", "config", "group.id 'other' is not the source's group 'g'"),
        ("config: {group.id: g}", None, ""),
        ("config: {acks: 0}, dead_letter: {topic: lost}", "dead_letter", "nothing could count as delivered"),
        ("config: {acks: 0, auto.offset.reset: latest}", None, ""),
    ],
)
def test_what_a_source_could_not_work_with_is_reported_at_its_key(
    folder: Folder, source: str, argument: str | None, words: str
) -> None:
    kafka = f"{{topics: t, group: g, {SERVERS}, {source}}}"
    settings = folder.settings(f"inbox_items: {{a_item: {{transports: {{log: }}, source: {{kafka: {kafka}}}}}}}")
    found: dict[str, str] = {}
    try:
        resolve(settings, builtin_transports=BUILTIN_TRANSPORTS, source_checks=SOURCE_CHECKS)
    except ConfigurationError as error:
        found = {each.path: each.message for each in error.problems}
    assert list(found) == ([] if argument is None else [f"inbox_items.a_item.source.kafka.{argument}"])
    assert all(words in message for message in found.values())
