"""What the kafka transport makes of librdkafka's errors; they come from a fake, because few can be provoked."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from boxengine.adapters.kafka import producers
from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.outcome import Failure
from tests.unit.transports.fake_kafka import FakeKafka, error
from tests.unit.transports.items import make_item

Make = Callable[..., KafkaTransport]


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka()


@pytest.fixture
def make(kafka: FakeKafka) -> Iterator[Make]:
    made: list[KafkaTransport] = []

    def make(**arguments: Any) -> KafkaTransport:
        settings: dict[str, Any] = {
            "topic": "orders",
            "bootstrap_servers": "b:1",
            "producers": ProducerPool(client=kafka.client),
        }
        made.append(KafkaTransport(**settings | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def make_transactional(make: Make) -> Make:
    return lambda **arguments: make(transactional=True, transactional_id="orders", **arguments)


THREE = [make_item(number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_MSG_TIMED_OUT", "not acknowledged within 60 s; whether the broker has it is unknown"),
        ("MSG_SIZE_TOO_LARGE", "message too large"),
        ("UNKNOWN_TOPIC_OR_PART", "unknown topic"),
        ("_UNKNOWN_TOPIC", "unknown topic"),
        ("TOPIC_AUTHORIZATION_FAILED", "not authorised"),
        ("_AUTHENTICATION", "authentication failed"),
        ("NOT_ENOUGH_REPLICAS", "too few replicas in sync"),
        ("INVALID_MSG", "not delivered"),
    ],
)
def test_each_kind_of_error_fails_its_own_item_with_its_own_words(
    make: Make, kafka: FakeKafka, name: str, words: str
) -> None:
    kafka.answers["key-2"] = error(name)
    first, second, third = make().call_batch(THREE)
    assert first is third is None
    assert isinstance(second, Failure)
    assert words in second.reason
    assert name in second.reason
    assert len(kafka.made) == 1


def test_a_fatal_error_replaces_the_producer_once(make: Make, kafka: FakeKafka) -> None:
    kafka.answers["key-1"] = error("_FATAL", fatal=True)
    transport = make()
    results = transport.call_batch(THREE)
    assert "fatal error of the producer, which was replaced" in str(results[0])
    assert results[1:] == [None, None]
    assert kafka.made[0].purged
    kafka.answers.clear()
    assert transport.call_batch(THREE) == [None] * 3
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2


def test_a_message_that_is_never_reported_is_given_up_and_taken_back(
    make: Make, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "GRACE", 0.05)
    kafka.answers["key-2"] = error("_TIMED_OUT")
    first, second, third = make(delivery_timeout=0.05).call_batch(THREE)
    assert first is third is None
    assert isinstance(second, Failure)
    assert "whether the broker has it is unknown" in second.reason
    assert kafka.made[0].purged


def test_what_a_broker_refuses_together_is_sent_again_one_by_one(make: Make, kafka: FakeKafka) -> None:
    for key in ("key-1", "key-3"):
        kafka.answers[key] = error("MSG_SIZE_TOO_LARGE")
    results = make().call_batch(THREE)
    assert [result is None for result in results] == [False, True, False]
    assert kafka.produced == ["key-1", "key-2", "key-3", "key-1", "key-3"]


def test_a_transaction_is_opened_once_and_committed_per_batch(make_transactional: Make, kafka: FakeKafka) -> None:
    transport = make_transactional()
    assert transport.call_batch(THREE) == [None] * 3
    assert transport.call_batch(THREE) == [None] * 3
    assert kafka.steps == ["init", "begin", "commit", "begin", "commit"]
    assert kafka.made[0].config["transactional.id"] == "orders-0-0"


def test_a_spoilt_transaction_is_repeated_without_the_message_that_spoilt_it(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.answers["key-2"] = error("TOPIC_AUTHORIZATION_FAILED")
    first, second, third = make_transactional().call_batch(THREE)
    assert first is third is None
    assert "not authorised" in str(second)
    assert kafka.steps == ["init", "begin", "abort", "init", "begin", "commit"]
    assert kafka.produced[3:] == ["key-1", "key-3"]


def test_a_transaction_that_cannot_commit_fails_all_its_items_with_the_reason(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.failing_steps["commit"] = deque([error("_FENCED", fatal=True)])
    transport = make_transactional()
    results = transport.call_batch(THREE)
    assert all("another producer took over its transactional.id" in str(result) for result in results)
    assert "abort" not in kafka.steps
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2


def test_a_commit_that_may_be_repeated_is_repeated(make_transactional: Make, kafka: FakeKafka) -> None:
    kafka.failing_steps["commit"] = deque([error("COORDINATOR_LOAD_IN_PROGRESS", retriable=True)])
    assert make_transactional().call_batch(THREE) == [None] * 3
    assert kafka.steps == ["init", "begin", "commit", "commit"]


def test_an_abort_that_fails_leaves_it_to_the_next_producer(make_transactional: Make, kafka: FakeKafka) -> None:
    kafka.answers["key-1"] = error("_MSG_TIMED_OUT")
    kafka.failing_steps["abort"] = deque([error("_STATE")])
    transport = make_transactional()
    assert all(isinstance(result, Failure) for result in transport.call_batch(THREE))
    kafka.answers.clear()
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2
