"""The kafka transport against librdkafka's MOCK cluster; the real broker is in ``tests/integration/transports``."""

import json
import logging
import socket
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from threading import enumerate as running_threads
from typing import Any

import pytest

from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.outcome import Failure
from boxengine.errors import Unavailable
from tests.unit.transports.items import make_item
from tests.unit.transports.kafka_reader import headers_of, read_all

Make = Callable[..., KafkaTransport]


@pytest.fixture
def make(mock_kafka: str) -> Iterator[Make]:
    made: list[KafkaTransport] = []

    def make(**arguments: Any) -> KafkaTransport:
        made.append(KafkaTransport(**{"topic": "orders", "bootstrap_servers": mock_kafka} | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def test_every_item_of_a_batch_arrives_with_its_key_payload_and_headers(make: Make, mock_kafka: str) -> None:
    items = [make_item(number) for number in range(1, 301)]
    assert make().call_batch(items) == [None] * 300
    messages = {message.key().decode(): message for message in read_all(mock_kafka, "orders")}
    assert len(messages) == 300
    for item in items:
        assert messages[item.event_key].value() == item.payload
        assert headers_of(messages[item.event_key]) == item.headers


def test_a_single_item_goes_out_with_the_built_payload(make: Make, mock_kafka: str) -> None:
    assert make()(make_item(), "built") is None
    assert [message.value() for message in read_all(mock_kafka, "orders")] == [b"built"]


def test_the_key_is_the_items_option_before_its_event_key(make: Make, mock_kafka: str) -> None:
    make().call_batch([make_item(1, options={"key": "mine"}), make_item(2, options='{"headers": {"a": "b"}}')])
    messages = sorted(read_all(mock_kafka, "orders"), key=lambda message: message.key())
    assert [message.key() for message in messages] == [b"key-2", b"mine"]
    assert headers_of(messages[0])["a"] == "b"


def test_topic_and_key_may_be_templates(make: Make, mock_kafka: str) -> None:
    transport = make(topic="orders.{event_name}", key="{options.tenant}/{event_key}")
    assert transport.call_batch([make_item(1, options={"tenant": "t1"})]) == [None]
    (message,) = read_all(mock_kafka, "orders.order_created")
    assert message.key() == b"t1/key-1"


def test_an_item_of_which_no_message_can_be_made_fails_alone(make: Make, mock_kafka: str) -> None:
    transport = make(topic="orders.{event_name}")
    results = transport.call_batch([make_item(1), make_item(2, event_name=None), make_item(3, payload={"a": 1})])
    assert results[0] is None
    assert isinstance(results[1], Failure)
    assert "needs event_name, and the item has none" in results[1].reason
    assert isinstance(results[2], Failure)
    assert "set `serializer: json`" in results[2].reason
    assert len(read_all(mock_kafka, "orders.order_created")) == 1


class Mute(Exception):
    """Says nothing about itself."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [SystemExit(1), CancelledError(), Mute()], ids=repr)
def test_whatever_a_serializer_raises_fails_its_own_item_alone(
    make: Make, mock_kafka: str, error: BaseException
) -> None:
    def serializer(payload: Any, _context: Any) -> Any:
        if payload == b"bad":
            raise error
        return payload

    first, bad, third = make(serializer=serializer).call_batch(
        [make_item(1), make_item(2, payload=b"bad"), make_item(3)]
    )
    assert (first, third) == (None, None)
    assert isinstance(bad, Failure)
    assert type(error).__name__ in bad.reason
    assert len(read_all(mock_kafka, "orders")) == 2


def test_structures_travel_as_json_and_none_as_a_tombstone(make: Make, mock_kafka: str) -> None:
    make(serializer="json").call_batch([make_item(1, payload={"a": "ö"}), make_item(2, payload=None)])
    values = {message.key(): message.value() for message in read_all(mock_kafka, "orders")}
    assert values == {b"key-1": '{"a":"ö"}'.encode(), b"key-2": None}


def shouting(payload: bytes, context: Any) -> bytes:
    context.headers.append(("topic-was", context.topic))
    return payload.upper()


def test_a_serializer_of_ones_own_sees_where_the_bytes_go_and_may_add_headers(make: Make, mock_kafka: str) -> None:
    make(serializer=f"{__name__}.shouting")(make_item(), b"quiet")
    (message,) = read_all(mock_kafka, "orders")
    assert message.value() == b"QUIET"
    assert headers_of(message)["topic-was"] == "orders"


def test_cloudevents_travel_in_binary_mode(make: Make, mock_kafka: str) -> None:
    item = make_item(options={"headers": {"own": "header"}})
    make(format="cloudevents", source="/shop")(item, item.payload)
    (message,) = read_all(mock_kafka, "orders")
    headers = headers_of(message)
    assert message.value() == item.payload
    assert headers["own"] == "header"
    assert {name: value for name, value in headers.items() if name.startswith("ce_")} == {
        "ce_specversion": "1.0",
        "ce_id": str(item.uuid),
        "ce_source": "/shop",
        "ce_type": "order_created",
        "ce_time": "2026-01-31T12:00:00.000250Z",
        "ce_subject": "key-1",
        "ce_partitionkey": "key-1",
    }
    assert headers["content-type"] == "application/json"


def test_a_cloudevent_in_structured_mode_is_one_json_object_and_a_tombstone_stays_one(
    make: Make, mock_kafka: str
) -> None:
    item = make_item(options={"headers": {"own": "header", "Content-Type": "text/plain"}})
    transport = make(format="cloudevents_structured", source="/shop")
    transport(item, b'{"total": 1.10}')
    transport(item, None)
    message, tombstone = read_all(mock_kafka, "orders")
    assert message.value().endswith(b',"data":{"total": 1.10}}')
    assert json.loads(message.value())["source"] == "/shop"
    headers = headers_of(message)
    assert headers["own"] == "header"
    assert {name: value for name, value in headers.items() if name.lower() == "content-type"} == {
        "content-type": "application/cloudevents+json; charset=UTF-8"
    }
    assert not [name for name in headers if name.startswith("ce_")]
    assert (tombstone.value(), headers_of(tombstone)["ce_id"]) == (None, item.uuid)


def test_a_payload_that_is_no_json_fails_its_item_alone_in_structured_mode(make: Make, mock_kafka: str) -> None:
    items = [make_item(1), make_item(2, payload=b"no json"), make_item(3)]
    sent, failed, sent_too = make(format="cloudevents_structured").call_batch(items)
    assert sent is sent_too is None
    assert isinstance(failed, Failure)
    assert "content_type application/json announces JSON" in failed.reason
    assert len(read_all(mock_kafka, "orders")) == 2


def test_what_a_serializer_makes_that_is_no_bytes_is_no_event_without_data(make: Make, mock_kafka: str) -> None:
    transport = make(
        format="cloudevents_structured", serializer=lambda payload, _context: {} if payload == b"bad" else payload
    )
    sent, failed = transport.call_batch([make_item(1), make_item(2, payload=b"bad")])
    assert sent is None
    assert isinstance(failed, Failure)
    assert "the serializer returned dict, not bytes or text" in failed.reason
    assert len(read_all(mock_kafka, "orders")) == 1


def test_the_order_of_a_key_is_kept_within_and_between_batches(make: Make, mock_kafka: str) -> None:
    transport = make()
    for start in range(0, 400, 100):
        transport.call_batch([make_item(n + 1, event_key=f"key-{n % 7}") for n in range(start, start + 100)])
    seen: dict[bytes, list[int]] = {}
    for message in read_all(mock_kafka, "orders"):
        seen.setdefault(message.key(), []).append(int(headers_of(message)["Sequence-ID"]))
    assert sum(map(len, seen.values())) == 400
    assert all(ids == sorted(ids) for ids in seen.values())


def kafka_threads() -> set[Thread]:
    return {thread for thread in running_threads() if "boxengine-kafka" in thread.name}


def test_threads_share_one_producer_and_get_their_own_results(make: Make, mock_kafka: str) -> None:
    transport = make()
    others = kafka_threads()
    too_large = b"x" * 2_000_000

    def send(thread: int) -> list[bool]:
        items = [make_item(thread * 1000 + n, payload=too_large if n == thread else b"x") for n in range(50)]
        return [isinstance(result, Failure) for result in transport.call_batch(items)]

    with ThreadPoolExecutor(8) as threads:
        failed = list(threads.map(send, range(8)))
    assert failed == [[n == thread for n in range(50)] for thread in range(8)]
    assert len(kafka_threads() - others) == 1
    assert len(read_all(mock_kafka, "orders")) == 8 * 49


def test_a_message_over_the_producers_limit_fails_alone_and_says_so(make: Make) -> None:
    results = make().call_batch([make_item(1), make_item(2, payload=b"x" * 2_000_000), make_item(3)])
    assert results[0] is results[2] is None
    assert isinstance(results[1], Failure)
    assert "message too large" in results[1].reason


def test_a_full_local_queue_is_waited_for(make: Make, mock_kafka: str) -> None:
    transport = make(config={"queue.buffering.max.messages": 10})
    assert transport.call_batch([make_item(number) for number in range(1, 201)]) == [None] * 200
    assert len(read_all(mock_kafka, "orders")) == 200


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address on which nobody listens, kept from others for the while."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("options", [{}, {"transactional": True, "transactional_id": "orders"}], ids=["plain", "tx"])
def test_an_unreachable_broker_leaves_the_batch_pending_and_tells_what_the_connection_said(
    make: Make, nobody: str, options: dict[str, Any]
) -> None:
    transport = make(bootstrap_servers=nobody, delivery_timeout=1.0, **options)
    first, second = transport.call_batch([make_item(1), make_item(2)])
    assert isinstance(first, Unavailable)
    assert "no broker answered within 1 s; nothing was sent" in str(first)
    assert "Connection refused" in str(first)
    assert second is first


def test_a_broker_that_stays_away_is_logged_at_debug_only(
    make: Make, nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "boxengine.kafka")
    make(bootstrap_servers=nobody, delivery_timeout=1.0)(make_item(), b"")
    lines = [record for record in caplog.records if record.name == "boxengine.kafka"]
    assert any("Connection refused" in line.getMessage() for line in lines)
    assert {line.levelno for line in lines} == {logging.DEBUG}


def test_transports_with_equal_settings_share_a_producer_of_the_pool(mock_kafka: str) -> None:
    pool = ProducerPool()
    same = [KafkaTransport(topic=topic, bootstrap_servers=mock_kafka, producers=pool) for topic in ("a", "b")]
    other = KafkaTransport(topic="c", bootstrap_servers=mock_kafka, config={"linger.ms": 1}, producers=pool)

    others = kafka_threads()

    def threads() -> int:
        return len(kafka_threads() - others)

    for transport in (*same, other):
        assert transport(make_item(), b"x") is None
    assert threads() == 2
    other.close()
    same[0].close()
    assert threads() == 1
    assert same[1](make_item(), b"x") is None
    same[1].close()
    assert threads() == 0


def test_a_closed_transport_takes_up_its_work_again(make: Make, mock_kafka: str) -> None:
    transport = make()
    transport(make_item(), b"1")
    transport.close()
    transport.close()
    assert transport(make_item(), b"2") is None
    assert len(read_all(mock_kafka, "orders")) == 2


def test_a_transaction_commits_what_can_be_sent_and_fails_the_rest_alone(make: Make) -> None:
    transport = make(transactional=True, transactional_id="orders-1")
    results = transport.call_batch([make_item(1), make_item(2, payload=b"x" * 2_000_000), make_item(3)])
    assert results[0] is results[2] is None
    assert "message too large" in str(results[1])
    assert transport.call_batch([make_item(4)]) == [None]


@pytest.mark.parametrize(
    "options",
    [
        {"partition": -1},
        {"partition": "x"},
        {"partition": True},
        {"partition": 2**40},
        {"partition": 99},
        {"timestamp": "soon"},
        {"timestamp": 2**70},
    ],
)
def test_a_partition_or_timestamp_that_is_none_fails_its_own_item(make: Make, options: dict[str, Any]) -> None:
    bad, good = make().call_batch([make_item(1, options=options), make_item(2)])
    assert good is None
    assert isinstance(bad, Failure)


def test_a_null_header_takes_the_engines_away_and_is_no_text() -> None:
    item = make_item(1, options={"headers": {"Outbox-Name": None, "x": None, "y": "z"}})
    assert item.headers["y"] == "z"
    assert not item.headers.keys() & {"Outbox-Name", "x"}
    assert item.null_headers == ["Outbox-Name", "x"]
