"""Topics that are created again under a consumer, without any server."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.adapters.kafka.consumer import KafkaSource
from boxengine.adapters.kafka.topic_ids import ASK_EVERY
from boxengine.adapters.memory.clock import ManualClock
from tests.unit.transports.faulty_consumer import FaultyKafka

NOW = timedelta(0)
OLD = [b"old"] * 5
NEW = [b"new"] * 6


class Rig:
    """A source over a topic that can be created again, and how often its id was asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.clock = ManualClock()
        self.kafka = FaultyKafka({0: OLD}, self._trip)
        self.source = self.another()

    def another(self) -> KafkaSource:
        """As another process has it."""
        config = {"bootstrap.servers": "fake", "group.id": "g"}
        return KafkaSource(topics=["orders"], config=config, client=self.kafka.client, monotonic=self.clock.monotonic)

    def create_anew(self) -> None:
        self.kafka.log = {0: NEW}
        self.kafka.topic_id = "second"

    def received(self, limit: int = 100) -> list[int]:
        return [message.offset for message in self.source.receive(limit, wait=NOW)]

    def _trip(self, step: str) -> None:
        self.asked += step == "topic_ids"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_topic_with_another_id_is_read_from_its_beginning(rig: Rig) -> None:
    rig.source.acknowledge(rig.source.receive(100, wait=NOW))
    rig.create_anew()
    rig.clock.advance(timedelta(seconds=ASK_EVERY))
    assert rig.received() == list(range(6))


def test_the_id_that_was_committed_tells_the_next_consumer(rig: Rig) -> None:
    rig.source.acknowledge(rig.source.receive(100, wait=NOW))
    rig.create_anew()
    rig.source = rig.another()
    assert (rig.received(), rig.received()) == ([], list(range(6)))


def test_a_message_of_the_topic_that_is_gone_leads_nobody_past_those_of_the_new_one(rig: Rig) -> None:
    """Such as one that waited for its dead letter to be taken."""
    old = rig.source.receive(100, wait=NOW)
    rig.source.acknowledge(old[:4])
    rig.source.halt(old[4])
    rig.create_anew()
    rig.clock.advance(timedelta(seconds=ASK_EVERY))
    assert rig.received(limit=2) == [0, 1]
    rig.source.put_back([old[4]])
    assert rig.received() == [2, 3, 4, 5]


def test_ids_are_asked_for_now_and_then_and_not_with_each_batch(rig: Rig) -> None:
    for _ in range(5):
        rig.received(limit=1)
    before = rig.asked
    for _ in range(20):
        rig.received()
    assert rig.asked == before
    rig.clock.advance(timedelta(seconds=ASK_EVERY))
    rig.received()
    assert rig.asked == before + 1
