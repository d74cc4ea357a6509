"""The kafka transport against a real broker."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.outcome import Failure
from boxengine.errors import Unavailable
from tests.eventually import eventually
from tests.servers.kafka import KafkaBroker
from tests.unit.transports.items import make_item
from tests.unit.transports.kafka_reader import headers_of, read_all

Make = Callable[..., KafkaTransport]


@pytest.fixture
def make(real_kafka: str, kafka_topic: str) -> Iterator[Make]:
    made: list[KafkaTransport] = []

    def make(**arguments: Any) -> KafkaTransport:
        made.append(KafkaTransport(**{"topic": kafka_topic, "bootstrap_servers": real_kafka} | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def sequences(messages: list[Any]) -> dict[str, list[int]]:
    """The items' ids by key, in the order in which they were read."""
    seen: dict[str, list[int]] = {}
    for message in messages:
        seen.setdefault(message.key().decode(), []).append(int(headers_of(message)["Sequence-ID"]))
    return seen


@pytest.mark.parametrize("options", [{}, {"transactional": True, "transactional_id": "orders"}], ids=["plain", "tx"])
def test_every_item_arrives_once_and_each_key_in_order(
    make: Make, real_kafka: str, kafka_topic: str, options: dict[str, Any]
) -> None:
    transport = make(**options)

    def deliver(thread: int) -> list[Any]:
        results: list[Any] = []
        for start in range(1, 1001, 200):
            items = [make_item(n, event_key=f"{thread}-{n % 13}") for n in range(start, start + 200)]
            results += transport.call_batch(items)
        return results

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(deliver, range(4))) == [[None] * 1000] * 4
    seen = sequences(read_all(real_kafka, kafka_topic))
    assert len(seen) == 4 * 13
    for key, ids in seen.items():
        assert ids == [n for n in range(1, 1001) if n % 13 == int(key.split("-")[1])]


@pytest.mark.parametrize("options", [{}, {"transactional": True, "transactional_id": "small"}], ids=["plain", "tx"])
def test_a_message_that_the_topic_finds_too_large_does_not_take_its_record_batch_with_it(
    make: Make, real_kafka: str, options: dict[str, Any]
) -> None:
    topic = f"small-{len(options)}"
    admin = AdminClient({"bootstrap.servers": real_kafka})
    new = NewTopic(topic, num_partitions=1, replication_factor=1, config={"max.message.bytes": "20000"})
    admin.create_topics([new])[topic].result(timeout=30)
    # The linger puts all of them into one record batch, which the broker refuses whole.
    transport = make(topic=topic, config={"linger.ms": 20, "compression.type": "none"}, **options)
    results = transport.call_batch([make_item(n, payload=b"x" * (30_000 if n == 3 else 10)) for n in range(1, 6)])
    assert [index for index, result in enumerate(results) if result is not None] == [2]
    assert "message too large" in str(results[2])
    assert sorted(message.key() for message in read_all(real_kafka, topic)) == [b"key-1", b"key-2", b"key-4", b"key-5"]


def test_a_topic_name_that_kafka_does_not_allow_fails_only_its_own_items(make: Make) -> None:
    transport = make(topic="orders.{event_name}")
    good, bad = make_item(1), make_item(2, event_name="no spaces please")
    first, second = transport.call_batch([good, bad])
    assert first is None
    assert isinstance(second, Failure)
    assert "topic" in second.reason


def test_messages_of_an_aborted_transaction_are_not_seen_by_read_committed(
    make: Make, real_kafka: str, kafka_topic: str
) -> None:
    transport = make(topic="{options.topic}", transactional=True, transactional_id="aborting")
    good = make_item(1, options={"topic": kafka_topic})
    bad = make_item(2, options={"topic": "not a topic"})
    first, second = transport.call_batch([good, bad])
    assert first is None
    assert isinstance(second, Failure)
    assert [message.key() for message in read_all(real_kafka, kafka_topic)] == [b"key-1"]


def test_a_worker_that_comes_back_fences_its_predecessor_which_puts_its_items_off_and_then_recovers(
    make: Make, real_kafka: str, kafka_topic: str
) -> None:
    zombie, successor = (make(transactional=True, transactional_id="same") for _ in range(2))
    assert zombie.call_batch([make_item(1)]) == [None]
    assert successor.call_batch([make_item(2)]) == [None]
    (fenced,) = zombie.call_batch([make_item(3)])
    assert isinstance(fenced, Unavailable)
    assert "took over its transactional.id" in str(fenced)
    assert zombie.call_batch([make_item(4)]) == [None]
    assert sorted(message.key() for message in read_all(real_kafka, kafka_topic)) == [b"key-1", b"key-2", b"key-4"]


def test_what_a_dead_worker_left_open_in_any_slot_does_not_hold_up_consumers(
    make: Make, real_kafka: str, kafka_topic: str
) -> None:
    # Slot 1 of 2; the successor sends through slot 0 only.
    dead = Producer({"bootstrap.servers": real_kafka, "transactional.id": f"{kafka_topic}-0-1", "log_level": 0})
    dead.init_transactions(30)
    dead.begin_transaction()
    for partition in range(4):
        dead.produce(kafka_topic, b"never committed", b"open", partition)
    assert dead.flush(30) == 0
    successor = make(transactional=True, transactional_id=kafka_topic, producers=ProducerPool(threads=2))
    assert successor.call_batch([make_item(1)]) == [None]
    eventually(lambda: [message.key() for message in read_all(real_kafka, kafka_topic)] == [b"key-1"], patience=30)
    dead.purge()


@pytest.mark.parametrize("options", [{}, {"transactional": True, "transactional_id": "frozen"}], ids=["plain", "tx"])
def test_a_broker_that_freezes_leaves_the_batch_pending_and_a_later_one_goes_through(
    own_kafka: KafkaBroker, options: dict[str, Any]
) -> None:
    transport = KafkaTransport(topic="frozen", bootstrap_servers=own_kafka.bootstrap, delivery_timeout=2.0, **options)
    try:
        assert transport.call_batch([make_item(1)]) == [None]
        own_kafka.send_signal(signal.SIGSTOP)
        (unknown,) = transport.call_batch([make_item(2)])
        assert isinstance(unknown, Unavailable)
        assert "whether the broker has it is unknown" in str(unknown)
        (unsent,) = transport.call_batch([make_item(4)])
        assert "no broker answered within 2 s; nothing was sent" in str(unsent)
        own_kafka.send_signal(signal.SIGCONT)
        # What was in the broker's socket may be worked off late, but never after what was sent later.
        eventually(lambda: transport.call_batch([make_item(3)]) == [None])
    finally:
        own_kafka.send_signal(signal.SIGCONT)
        transport.close()
    keys = [message.key() for message in read_all(own_kafka.bootstrap, "frozen")]
    assert {b"key-1", b"key-3"} <= set(keys)
    assert keys.count(b"key-2") <= 1
    assert b"key-4" not in keys
