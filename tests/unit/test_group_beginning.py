"""Where a group begins that reads its topics from the end, without any server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from boxengine.adapters.kafka.beginning import begin_at_the_end, begins_at_the_end
from boxengine.errors import SourceUnavailable

ENDS = {0: 7, 1: 9}
COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


class StubConsumer:
    """Partitions 0 and 1 of a topic, and what the group has committed of them."""

    def __init__(self, committed: Mapping[int, int], ends: Mapping[int, int] = ENDS) -> None:
        self._committed = committed
        self._ends = ends
        self.assigned: dict[int, int] = {}
        self.added: dict[int, int] = {}

    def committed(self, places: Sequence[TopicPartition], *, timeout: float) -> list[TopicPartition]:
        return [
            TopicPartition(each.topic, each.partition, self._committed.get(each.partition, -1001)) for each in places
        ]

    def get_watermark_offsets(self, place: TopicPartition, *, timeout: float) -> tuple[int, int] | None:
        return (0, self._ends[place.partition]) if place.partition in self._ends else None

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned = {each.partition: each.offset for each in places}

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        self.added = {each.partition: each.offset for each in places}


def begin(consumer: StubConsumer, config: Mapping[str, Any]) -> Mapping[tuple[str, int], int]:
    places = [TopicPartition("orders", number) for number in ENDS]
    return begin_at_the_end(consumer, places, config=config, exception=KafkaException)


def test_only_partitions_without_a_committed_offset_begin_at_their_end() -> None:
    consumer = StubConsumer({0: 3})
    assert begin(consumer, COOPERATIVE) == {("orders", 1): 9}
    assert (consumer.added, consumer.assigned) == ({0: 3, 1: 9}, {})


def test_under_an_eager_strategy_the_partitions_are_all_that_there_are() -> None:
    consumer = StubConsumer({0: 3})
    begin(consumer, {"partition.assignment.strategy": "range"})
    assert (consumer.added, consumer.assigned) == ({}, {0: 3, 1: 9})


def test_nothing_is_assigned_while_no_broker_says_where_a_partition_ends() -> None:
    consumer = StubConsumer({}, ends={0: 7})
    with pytest.raises(SourceUnavailable, match="where partition 1 of topic orders ends"):
        begin(consumer, COOPERATIVE)
    assert (consumer.added, consumer.assigned) == ({}, {})


@pytest.mark.parametrize(
    ("reset", "expected"), [("latest", True), ("LARGEST", True), ("end", True), ("earliest", False), (None, False)]
)
def test_what_librdkafka_calls_the_end(reset: str | None, expected: bool) -> None:
    assert begins_at_the_end({} if reset is None else {"auto.offset.reset": reset}) is expected
