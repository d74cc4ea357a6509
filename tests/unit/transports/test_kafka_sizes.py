"""What is known of the sizes of topics, and who waits for the broker's answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from boxengine.adapters.kafka.client import Client
from boxengine.adapters.kafka.messages import Message
from boxengine.adapters.kafka.sizes import ASKED_FROM, TopicLimits
from tests.unit.transports.fake_kafka import error

PATIENCE = 10.0
"""Seconds; reached only by a failing test."""


class Broker:
    """Answers for the topic ``slow`` once it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reached = Event()
        self.may_answer = Event()

    def __call__(self, _config: Mapping[str, Any], topic: str, _within: float) -> int:
        self.asked.append(topic)
        if topic == "slow":
            self.reached.set()
            self.may_answer.wait(PATIENCE)
        return 2 * ASKED_FROM


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    yield broker
    broker.may_answer.set()


def message(topic: str) -> Message:
    return Message(topic, b"x" * 3 * ASKED_FROM, "key", None)


def test_nobody_waits_for_what_another_asks_about_another_topic(broker: Broker) -> None:
    limits = TopicLimits({}, Client(producer=None, error=object, exception=Exception, admin=broker))
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(list, limits.runs([message("slow")]))
        assert broker.reached.wait(PATIENCE)
        fast = threads.submit(list, limits.runs([message("fast")]))
        try:
            [run] = fast.result(PATIENCE / 2)
        finally:
            broker.may_answer.set()
        assert run.suspect
        assert [run.suspect for run in slow.result(PATIENCE)] == [True]


def test_a_topic_is_asked_about_once_by_all_threads(broker: Broker) -> None:
    limits = TopicLimits({}, Client(producer=None, error=object, exception=Exception, admin=broker))
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(list, limits.runs([message("slow")]))
        assert broker.reached.wait(PATIENCE)
        second = threads.submit(list, limits.runs([message("slow")]))
        broker.may_answer.set()
        assert first.result(PATIENCE) == second.result(PATIENCE)
    assert broker.asked == ["slow"]


@pytest.mark.parametrize(
    ("answer", "asked"),
    [("_TIMED_OUT", ["0"]), ("_TRANSPORT", ["0"]), ("TOPIC_AUTHORIZATION_FAILED", ["0", "1", "2"])],
)
def test_brokers_that_do_not_answer_about_one_topic_are_not_asked_about_the_next(answer: str, asked: list[str]) -> None:
    """Each question takes seconds there, and a batch may have hundreds of topics."""
    questions: list[str] = []

    def admin(_config: Mapping[str, Any], topic: str, _within: float) -> int:
        questions.append(topic)
        raise KafkaException(error(answer))

    limits = TopicLimits({}, Client(producer=None, error=KafkaError, exception=KafkaException, admin=admin))
    [run] = limits.runs([message(str(number)) for number in range(3)])
    assert (len(run.messages), questions) == (3, asked)
