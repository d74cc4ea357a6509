"""``MessageSource``: what is not acknowledged comes again, in its order, in memory as from a real Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from boxengine.adapters.kafka.consumer import KafkaSource
from boxengine.adapters.kafka.consumer_config import consumer_config
from boxengine.adapters.memory.source import MemorySource
from boxengine.domain.message import ReceivedMessage
from boxengine.ports import MessageSource
from tests.eventually import eventually
from tests.integration.kafka.inbox import produce

PARTITIONS, EACH = 2, 10


@pytest.fixture(params=["memory", "kafka"])
def source(request: pytest.FixtureRequest) -> Iterator[MessageSource]:
    """Over ten messages in each of two partitions; after ``close`` it begins again where the group left off."""
    if request.param == "memory":
        yield MemorySource(
            [ReceivedMessage("t", number, offset, None, b"x") for number in range(PARTITIONS) for offset in range(EACH)]
        )
        return
    bootstrap, topic = request.getfixturevalue("real_kafka"), request.getfixturevalue("kafka_topic")
    produce(bootstrap, topic, [{"value": "x", "partition": n % PARTITIONS} for n in range(PARTITIONS * EACH)])
    kafka = KafkaSource(
        topics=[topic],
        config=consumer_config(
            bootstrap_servers=bootstrap,
            group=f"group-{topic}",
            config={"statistics.interval.ms": 100},
            slot="0.0",
        ),
    )
    yield kafka
    kafka.close()


def receive(source: MessageSource, count: int, *, limit: int = 100) -> list[ReceivedMessage]:
    """At least so many messages."""
    found: list[ReceivedMessage] = []
    for _ in range(200):
        if len(found) >= count:
            return found
        batch = source.receive(limit, wait=timedelta(seconds=0.2))
        assert len(batch) <= limit
        found += batch
    raise AssertionError(f"{len(found)} of {count} messages came")


def nothing_comes(source: MessageSource) -> bool:
    return not any(source.receive(100, wait=timedelta(seconds=0.2)) for _ in range(5))


def offsets(messages: Sequence[ReceivedMessage], partition: int) -> list[int]:
    return [message.offset for message in messages if message.partition == partition]


def test_each_partition_comes_in_its_order_and_each_message_once(source: MessageSource) -> None:
    found = receive(source, PARTITIONS * EACH, limit=3)
    for number in range(PARTITIONS):
        assert offsets(found, number) == list(range(EACH))
    assert nothing_comes(source)
    source.check()


def test_what_is_put_back_comes_again_before_what_follows_it(source: MessageSource) -> None:
    first = receive(source, 4, limit=4)
    source.put_back(first)
    again = receive(source, PARTITIONS * EACH)
    for number in range(PARTITIONS):
        assert offsets(again, number) == list(range(EACH))


def test_what_is_acknowledged_is_done_and_the_rest_comes_to_the_next_consumer(source: MessageSource) -> None:
    found = receive(source, PARTITIONS * EACH)
    done = [message for message in found if message.partition == 0 and message.offset < 7]
    source.acknowledge(done)
    source.close()
    again = receive(source, PARTITIONS * EACH - 7)
    assert offsets(again, 0) == [7, 8, 9]
    assert offsets(again, 1) == list(range(EACH))


def test_a_halted_partition_stands_still_at_its_message_while_the_others_go_on(source: MessageSource) -> None:
    found = receive(source, PARTITIONS * EACH)
    guilty = next(message for message in found if (message.partition, message.offset) == (1, 4))
    before = [message for message in found if message.partition == 0 or message.offset < 4]
    source.halt(guilty)
    source.acknowledge(before)
    assert nothing_comes(source)
    source.close()
    again = receive(source, 6)
    assert offsets(again, 0) == []
    assert offsets(again, 1) == [4, 5, 6, 7, 8, 9]


def test_what_was_put_back_before_a_halted_message_comes_again(source: MessageSource) -> None:
    found = receive(source, PARTITIONS * EACH)
    guilty = next(message for message in found if (message.partition, message.offset) == (1, 4))
    source.halt(guilty)
    source.put_back([message for message in found if message.partition == 1 and message.offset < 4])
    assert offsets(receive(source, 4), 1)[:4] == [0, 1, 2, 3]


def test_a_later_message_put_back_after_earlier_ones_skips_none_of_them(source: MessageSource) -> None:
    found = receive(source, PARTITIONS * EACH)
    guilty = next(message for message in found if (message.partition, message.offset) == (1, 4))
    source.halt(guilty)
    source.put_back([message for message in found if message.partition == 1 and message.offset < 4])
    source.put_back([guilty])
    assert offsets(receive(source, EACH), 1) == list(range(EACH))


def test_a_halted_partition_goes_on_once_its_message_is_put_back(source: MessageSource) -> None:
    found = receive(source, PARTITIONS * EACH)
    guilty = next(message for message in found if (message.partition, message.offset) == (1, 4))
    source.halt(guilty)
    assert nothing_comes(source)
    source.put_back([guilty])
    assert offsets(receive(source, 6), 1) == [4, 5, 6, 7, 8, 9]


def test_the_lag_of_a_partition_is_what_is_not_acknowledged_yet(source: MessageSource) -> None:
    found = receive(source, PARTITIONS * EACH)
    source.acknowledge([message for message in found if message.partition == 0 and message.offset < 7])
    topic = found[0].topic

    def lags() -> tuple[int | None, int | None]:
        source.receive(1, wait=timedelta(seconds=0.1))
        known = source.lags()
        return known.get((topic, 0)), known.get((topic, 1))

    eventually(lambda: lags() == (3, 10))
    source.close()
    # As far as the group had come, also for the consumer that takes over.
    eventually(lambda: lags() == (3, 10))
