"""Named topics that do not exist or may not be read, without any server."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

import pytest
from confluent_kafka import KafkaException

from boxengine.adapters.kafka.absent_topics import AbsentTopics
from boxengine.adapters.kafka.topic_ids import ASK_AGAIN, ASK_EVERY
from boxengine.adapters.memory.clock import ManualClock
from tests.unit.transports.fake_kafka import error

ABSENT = ("orders", "topic orders does not exist")


class Rig:
    """A consumer of two topics and a pattern, and a broker that knows some topics, or does not answer."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.known: set[str] = set()
        self.answers = True
        self.asked: list[set[str]] = []
        self.told: list[tuple[str, str | None]] = []
        self.topics = AbsentTopics(
            ["orders", "payments", "^returns.*"], self._ask, tell=lambda *told: self.told.append(told)
        )
        self.topics.begin(self.clock.monotonic())

    def look(self, after: float = 0.0) -> list[tuple[str, str | None]]:
        """What is told by a look."""
        self.clock.advance(timedelta(seconds=after))
        self.told.clear()
        self.topics.look(self.clock.monotonic())
        return list(self.told)

    def _ask(self, topics: Collection[str]) -> Mapping[str, str | None]:
        self.asked.append(set(topics))
        if not self.answers:
            raise KafkaException(error("_TIMED_OUT"))
        return {topic: None if topic in self.known else f"topic {topic} does not exist" for topic in topics}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_topics_whose_partitions_are_assigned_are_not_asked_for(rig: Rig) -> None:
    rig.topics.seen(["orders", "payments", "returns.eu"])
    assert rig.look(after=ASK_EVERY) == []
    assert rig.asked == []


def test_a_named_topic_that_does_not_exist_is_told_again_until_it_does(rig: Rig) -> None:
    rig.known = {"payments"}
    assert rig.look() == []
    assert rig.look(after=ASK_EVERY) == [("payments", None), ABSENT]
    assert rig.look() == []
    assert rig.look(after=ASK_EVERY) == [ABSENT]
    rig.known |= {"orders"}
    assert rig.look(after=ASK_EVERY) == [("orders", None)]
    assert rig.look(after=ASK_EVERY) == []
    assert rig.asked == [{"orders", "payments"}, {"orders"}, {"orders"}]


def test_a_topic_that_is_said_not_to_exist_is_asked_for_at_once(rig: Rig) -> None:
    rig.topics.seen(["orders", "payments"])
    assert rig.topics.doubt("orders")
    assert rig.look() == [ABSENT]


def test_a_pattern_that_matches_nothing_is_no_absent_topic(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.topics.seen(["orders", "payments"])
    assert rig.topics.doubt("^returns.*")
    assert rig.look(after=ASK_EVERY) == []
    assert caplog.messages == ["no topic matches ^returns.* yet"]


def test_what_was_not_subscribed_to_is_not_doubted(rig: Rig) -> None:
    assert not rig.topics.doubt("returns.eu")
    assert not rig.topics.doubt(None)


def test_without_an_answer_nothing_is_told_and_the_next_question_comes_later(rig: Rig) -> None:
    rig.answers = False
    with pytest.raises(KafkaException):
        rig.look(after=ASK_EVERY)
    assert rig.look(after=ASK_EVERY) == rig.told == []
    rig.answers = True
    assert rig.look(after=ASK_AGAIN) == [ABSENT, ("payments", "topic payments does not exist")]
