"""What a Kafka consumer knows without asking: how far it is behind, and whether its broker is there."""

from __future__ import annotations

import json
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from boxengine.adapters.kafka.consumer import KafkaSource
from boxengine.adapters.kafka.consumer_client import ConsumerClient
from boxengine.adapters.kafka.statistics import Extent, extents
from boxengine.domain.message import ReceivedMessage


@pytest.mark.parametrize(
    ("extent", "position", "lag"),
    [
        (Extent(first=0, end=50, committed=20), 30, 20),
        (Extent(first=0, end=50, committed=20), None, 30),
        (Extent(first=10, end=50, committed=-1001), None, 40),
        (Extent(first=0, end=50, committed=20), 60, 0),
        (Extent(first=-1, end=50, committed=-1001), None, None),
        (Extent(first=0, end=-1, committed=20), 30, None),
    ],
)
def test_the_lag_is_what_lies_between_the_position_and_the_end_where_both_are_known(
    extent: Extent, position: int | None, lag: int | None
) -> None:
    assert extent.lag(position) == lag


def test_the_end_is_that_of_committed_transactions_where_the_broker_tells_it() -> None:
    known = {"lo_offset": 3, "hi_offset": 9, "committed_offset": 4}
    partitions = {"0": known, "1": known | {"ls_offset": 7}, "-1": {}}
    found = extents(json.dumps({"topics": {"orders": {"partitions": partitions}}}))
    assert found[("orders", 0)] == Extent(3, 9, 4)
    assert found[("orders", 1)] == Extent(3, 7, 4)
    assert found[("orders", -1)].lag(None) is None
    assert extents("{}") == {}


class Silent:
    """A consumer of librdkafka whose commits are not answered until the broker is back."""

    def __init__(self, _config: Any, logger: Any) -> None:
        self.committing, self.answered = threading.Event(), threading.Event()

    def subscribe(self, topics: list[str], *, on_assign: Any = None, **callbacks: Any) -> None:
        if on_assign is not None:
            on_assign(self, [Place("orders", 0)])

    def commit(self, **_options: Any) -> list[Any]:
        self.committing.set()
        assert self.answered.wait(60)
        return []

    def close(self) -> None: ...


class Place:
    def __init__(self, topic: str, partition: int, offset: int = -1, metadata: str = "") -> None:
        self.topic, self.partition, self.offset = topic, partition, offset


def test_who_waits_for_the_answer_to_a_commit_says_so_before() -> None:
    told: SimpleQueue[str | None] = SimpleQueue()
    client = ConsumerClient(Silent, Place, Exception, RuntimeError)
    source = KafkaSource(topics=["orders"], config={}, client=lambda: client, waiting=told.put)
    consumer = source._connected()
    message = ReceivedMessage("orders", 0, 7, b"k", b"v")
    thread = threading.Thread(target=source.acknowledge, args=([message],))
    thread.start()
    assert told.get(timeout=60) == "no answer"
    assert consumer.committing.wait(60)
    assert told.empty()
    consumer.answered.set()
    thread.join(60)
    assert told.get(timeout=60) is None
