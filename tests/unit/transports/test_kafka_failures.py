"""What the kafka transport makes of librdkafka's errors; they come from a fake, because few can be provoked."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.domain.outcome import Failure
from boxengine.errors import Unavailable
from tests.eventually import eventually
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
MANY_TOPICS = "orders.{event_key}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MSG_SIZE_TOO_LARGE", "message too large"),
        ("TOPIC_EXCEPTION", "the topic's name is not valid"),
        ("INVALID_RECORD", "a compacted topic needs a key"),
        ("INVALID_MSG", "not delivered"),
    ],
)
def test_an_error_of_one_message_is_a_failed_attempt_of_its_item_with_words_of_its_own(
    make: Make, kafka: FakeKafka, name: str, words: str
) -> None:
    kafka.answers["key-2"] = error(name)
    first, second, third = make().call_batch(THREE)
    assert first is third is None
    assert isinstance(second, Failure)
    assert words in second.reason
    assert name in second.reason
    assert not kafka.made[0].purged, "the producer of the others goes on"


TOPICS_ERRORS = pytest.mark.parametrize(
    ("name", "words"),
    [
        ("UNKNOWN_TOPIC_OR_PART", "unknown topic, and the broker does not create it"),
        ("_UNKNOWN_TOPIC", "unknown topic, and the broker does not create it"),
        ("TOPIC_AUTHORIZATION_FAILED", "not authorised"),
    ],
)


@TOPICS_ERRORS
def test_an_error_of_one_topic_among_others_is_a_failed_attempt_of_its_items_and_names_it(
    make: Make, kafka: FakeKafka, name: str, words: str
) -> None:
    kafka.answers["key-2"] = error(name)
    first, second, third = make(topic=MANY_TOPICS).call_batch(THREE)
    assert first is third is None
    assert isinstance(second, Failure)
    assert f"kafka: topic orders.key-2: {words}" in second.reason


@TOPICS_ERRORS
def test_an_error_of_the_only_topic_is_no_attempt(make: Make, kafka: FakeKafka, name: str, words: str) -> None:
    kafka.answers |= dict.fromkeys(("key-1", "key-2", "key-3"), error(name))
    results = make().call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert f"kafka: topic orders: {words}" in str(results[0])


@TOPICS_ERRORS
def test_a_transaction_for_the_only_topic_is_not_repeated_where_that_is_in_error(
    make_transactional: Make, kafka: FakeKafka, name: str, words: str
) -> None:
    kafka.answers |= dict.fromkeys(("key-1", "key-2", "key-3"), error(name))
    results = make_transactional().call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert all(f"kafka: topic orders: {words}" in str(result) for result in results)
    assert kafka.steps == ["init", "begin", "abort"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_MSG_TIMED_OUT", "not acknowledged within 60 s; whether the broker has it is unknown"),
        ("REQUEST_TIMED_OUT", "not acknowledged within 60 s"),
        ("_TRANSPORT", "not delivered"),
        ("_QUEUE_FULL", "local queue stayed full"),
        ("_PURGE_QUEUE", "taken back unsent"),
        ("_PURGE_INFLIGHT", "whether the broker has it is unknown"),
        ("_AUTHENTICATION", "authentication failed"),
        ("CLUSTER_AUTHORIZATION_FAILED", "not authorised"),
        ("NOT_ENOUGH_REPLICAS", "too few replicas in sync"),
        ("_FATAL", "fatal error of the producer, which was replaced"),
        ("OUT_OF_ORDER_SEQUENCE_NUMBER", "the broker lost track of the producer"),
        ("UNKNOWN_PRODUCER_ID", "the broker lost track of the producer"),
        ("INVALID_TXN_STATE", "its transaction was over already"),
        ("TRANSACTION_ABORTABLE", "not delivered"),
    ],
)
def test_an_error_that_every_message_would_have_met_is_no_attempt(
    make: Make, kafka: FakeKafka, name: str, words: str
) -> None:
    kafka.answers["key-2"] = error(name)
    first, second, third = make().call_batch(THREE)
    assert first is third is None
    assert isinstance(second, Unavailable)
    assert words in str(second)
    assert name in str(second)


def test_brokers_that_do_not_answer_are_given_nothing_and_asked_again_by_the_next_batch(
    make: Make, kafka: FakeKafka
) -> None:
    transport = make()
    kafka.away = error("_RESOLVE")
    results = transport.call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert "no broker answered within 10 s; nothing was sent" in str(results[0])
    assert "last error: fake _RESOLVE" in str(results[0])
    assert kafka.produced == []
    kafka.away = None
    assert transport.call_batch(THREE) == [None] * 3
    assert transport.call_batch(THREE) == [None] * 3
    assert (kafka.asked, len(kafka.made)) == (2, 1)


def test_refused_credentials_are_named_where_no_broker_answers(make: Make, kafka: FakeKafka) -> None:
    kafka.away = error("_AUTHENTICATION")
    (result, *_) = make().call_batch(THREE)
    assert isinstance(result, Unavailable)
    assert "authentication failed: see the credentials in config" in str(result)


def test_brokers_that_went_away_between_two_batches_are_asked_first(make: Make, kafka: FakeKafka) -> None:
    transport = make()
    transport.call_batch(THREE)
    kafka.made[0].config["error_cb"](error("_ALL_BROKERS_DOWN"))
    kafka.away = error("_TRANSPORT")
    produced = list(kafka.produced)
    assert all(isinstance(result, Unavailable) for result in transport.call_batch(THREE))
    assert kafka.produced == produced


def test_while_somebody_waits_for_brokers_that_are_down_the_pool_is_told_until_they_answer(kafka: FakeKafka) -> None:
    told: SimpleQueue[tuple[str, str | None]] = SimpleQueue()
    pool = ProducerPool(client=kafka.client, missing=lambda what, reason: told.put((what, reason)))
    transport = KafkaTransport(topic="orders", bootstrap_servers="b:1", delivery_timeout=30.0, producers=pool)
    kafka.answers["key-2"] = error("_TIMED_OUT")
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(transport.call_batch, THREE)
        eventually(lambda: "key-3" in kafka.produced)
        kafka.made[0].config["error_cb"](error("_ALL_BROKERS_DOWN"))
        assert told.get(timeout=30) == ("kafka b:1", "no broker can be reached")
        kafka.made[0].acknowledge_late()
        assert waiting.result(timeout=30) == [None] * 3
    eventually(lambda: told.get(timeout=30) == ("kafka b:1", None))
    transport.close()


@pytest.mark.parametrize("name", ["_FATAL", "OUT_OF_ORDER_SEQUENCE_NUMBER"])
def test_an_error_that_breaks_the_producer_replaces_it_once(make: Make, kafka: FakeKafka, name: str) -> None:
    kafka.answers["key-1"] = error(name, fatal=name == "_FATAL")
    transport = make()
    results = transport.call_batch(THREE)
    assert isinstance(results[0], Unavailable)
    assert results[1:] == [None, None]
    assert kafka.made[0].purged
    kafka.answers.clear()
    assert transport.call_batch(THREE) == [None] * 3
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2


@pytest.mark.parametrize("options", [{}, {"transactional": True, "transactional_id": "orders"}], ids=["plain", "tx"])
def test_that_no_producer_can_be_made_costs_no_attempt(make: Make, kafka: FakeKafka, options: dict[str, Any]) -> None:
    transport = make(**options)
    kafka.refusing = error("_CRIT_SYS_RESOURCE")
    results = transport.call_batch(THREE)
    assert all(isinstance(result, Unavailable) and "fake _CRIT_SYS_RESOURCE" in str(result) for result in results)
    kafka.refusing = None
    assert transport.call_batch(THREE) == [None] * 3


def test_a_large_message_for_which_no_producer_can_be_made_waits_and_the_one_before_it_is_delivered(
    make: Make, kafka: FakeKafka
) -> None:
    kafka.limit = 10_000
    transport = make()
    assert transport.call_batch(THREE) == [None] * 3
    kafka.refusing = error("_CRIT_SYS_RESOURCE")
    first, second = transport.call_batch([make_item(4), make_item(5, payload=b"x" * 20_000)])
    assert first is None
    assert isinstance(second, Unavailable)


def test_a_message_that_is_never_reported_is_given_up_and_taken_back(make: Make, kafka: FakeKafka) -> None:
    kafka.answers["key-2"] = error("_TIMED_OUT")
    first, second, third = make(delivery_timeout=0.05).call_batch(THREE)
    assert first is third is None
    assert isinstance(second, Unavailable)
    assert "whether the broker has it is unknown" in str(second)
    assert kafka.made[0].purged


def test_what_a_broker_refuses_together_is_sent_again_one_by_one(make: Make, kafka: FakeKafka) -> None:
    for key in ("key-1", "key-3"):
        kafka.answers[key] = error("MSG_SIZE_TOO_LARGE")
    results = make().call_batch(THREE)
    assert [result is None for result in results] == [False, True, False]
    assert kafka.produced == ["key-1", "key-2", "key-3", "key-1", "key-3"]


def test_one_that_was_refused_with_messages_of_other_threads_is_sent_again_by_a_producer_that_has_nothing_else(
    make: Make, kafka: FakeKafka
) -> None:
    kafka.once["key-3"] = error("MSG_SIZE_TOO_LARGE")
    assert make().call_batch(THREE) == [None] * 3
    assert kafka.produced == ["key-1", "key-2", "key-3", "key-3"]
    assert kafka.through == [0, 0, 0, 1]


def test_one_that_was_refused_before_a_later_one_of_its_key_went_through_is_a_failed_attempt(
    make: Make, kafka: FakeKafka
) -> None:
    kafka.once["key-1"] = error("MSG_SIZE_TOO_LARGE")
    results = make().call_batch([make_item(1), make_item(2), make_item(3, event_key="key-1")])
    assert isinstance(results[0], Failure)
    assert results[1:] == [None, None]
    assert kafka.produced == ["key-1", "key-2", "key-1"], "it does not come after its follower"


@pytest.mark.parametrize("size", [20_000, 9_950])
def test_a_message_that_may_be_too_large_for_its_topic_goes_alone_in_its_place(
    make: Make, kafka: FakeKafka, size: int
) -> None:
    kafka.limit = 10_000
    kafka.answers["key-2"] = error("MSG_SIZE_TOO_LARGE")
    items = [make_item(number, payload=b"x" * (size if number == 2 else 5_000)) for number in (1, 2, 3)]
    first, second, third = make().call_batch(items)
    assert first is third is None
    assert isinstance(second, Failure)
    assert kafka.produced == ["key-1", "key-2", "key-3"]
    assert kafka.through == [0, 1, 0]


def test_nothing_follows_a_large_message_whose_broker_does_not_answer(make: Make, kafka: FakeKafka) -> None:
    kafka.limit = 10_000
    kafka.answers["key-2"] = error("_MSG_TIMED_OUT")
    items = [make_item(number, payload=b"x" * (20_000 if number == 2 else 10)) for number in (1, 2, 3)]
    first, second, third = make().call_batch(items)
    assert first is None
    assert [type(second), type(third)] == [Unavailable, Unavailable]
    assert kafka.produced == ["key-1", "key-2"]


def test_nothing_follows_a_run_in_which_a_message_is_put_off(make: Make, kafka: FakeKafka) -> None:
    kafka.limit = 10_000
    kafka.once["key-1"] = error("_MSG_TIMED_OUT")
    items = [make_item(1), make_item(2), make_item(3, event_key="key-1", payload=b"x" * 20_000)]
    first, second, third = make().call_batch(items)
    assert [type(first), second, type(third)] == [Unavailable, None, Unavailable]
    assert kafka.produced == ["key-1", "key-2"]


def test_what_is_sent_again_alone_does_not_overtake_an_earlier_one_of_its_key_that_is_put_off(
    make: Make, kafka: FakeKafka
) -> None:
    kafka.once["key-1"] = error("_MSG_TIMED_OUT")
    kafka.once["key-2"] = error("MSG_SIZE_TOO_LARGE")
    batch = [make_item(1), make_item(2), make_item(3, event_key="late"), make_item(4, event_key="late")]
    kafka.once["late"] = error("_MSG_TIMED_OUT")
    kafka.answers["late"] = error("MSG_SIZE_TOO_LARGE")
    results = make().call_batch(batch)
    assert [type(result) for result in results] == [Unavailable, type(None), Unavailable, Unavailable]
    assert kafka.produced == ["key-1", "key-2", "late", "late", "key-2"]


def test_no_transaction_follows_one_in_which_a_message_is_put_off(make_transactional: Make, kafka: FakeKafka) -> None:
    kafka.limit = 10_000
    kafka.answers["key-2"] = error("TOPIC_AUTHORIZATION_FAILED")
    kafka.failing_steps["commit"] = deque([error("_FENCED", fatal=True)])
    items = [make_item(1), make_item(2), make_item(3, event_key="key-1", payload=b"x" * 20_000)]
    results = make_transactional(topic=MANY_TOPICS).call_batch(items)
    assert [type(result) for result in results] == [Unavailable, Failure, Unavailable]
    assert kafka.produced == ["key-1", "key-2", "key-1"]


def test_a_spoilt_transaction_in_which_a_broker_did_not_answer_is_not_repeated_without_that_message(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.once["key-1"] = error("_MSG_TIMED_OUT")
    kafka.answers["key-2"] = error("TOPIC_AUTHORIZATION_FAILED")
    items = [make_item(1), make_item(2), make_item(3, event_key="key-1")]
    results = make_transactional(topic=MANY_TOPICS).call_batch(items)
    assert [type(result) for result in results] == [Unavailable, Failure, Unavailable]


def test_what_was_taken_back_with_a_spoilt_transaction_goes_out_in_its_place_again(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.once["key-1"] = error("_PURGE_QUEUE")
    kafka.once["key-2"] = error("MSG_SIZE_TOO_LARGE")
    items = [make_item(1), make_item(2), make_item(3, event_key="key-1")]
    assert make_transactional().call_batch(items) == [None] * 3
    assert kafka.produced[3:] == ["key-1", "key-2", "key-1"]


def test_what_came_after_its_transaction_was_spoilt_goes_out_with_the_next(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.answers["key-2"] = error("TOPIC_AUTHORIZATION_FAILED")
    kafka.once["key-3"] = error("_STATE")
    first, second, third = make_transactional(topic=MANY_TOPICS).call_batch(THREE)
    assert first is third is None
    assert isinstance(second, Failure)
    assert kafka.produced[3:] == ["key-1", "key-3"]


def test_after_a_group_in_which_a_message_is_put_off_no_other_of_its_transaction_is_sent(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.once["key-2"] = error("_PURGE_QUEUE")
    kafka.answers["key-2"] = error("TOPIC_AUTHORIZATION_FAILED")
    kafka.once["key-3"] = error("MSG_SIZE_TOO_LARGE")
    items = [*THREE, make_item(4, event_key="key-1")]
    results = make_transactional(topic=MANY_TOPICS).call_batch(items)
    assert [type(result) for result in results] == [Unavailable, Failure, Unavailable, Unavailable]
    assert kafka.produced[4:] == ["key-1", "key-2"]


def test_after_a_transaction_that_was_refused_whole_its_messages_go_out_in_their_order(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.once["key-1"] = error("MSG_SIZE_TOO_LARGE")
    assert make_transactional().call_batch(THREE) == [None] * 3
    assert kafka.produced[3:] == ["key-1", "key-2", "key-3"]


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
    first, second, third = make_transactional(topic=MANY_TOPICS).call_batch(THREE)
    assert first is third is None
    assert "not authorised" in str(second)
    assert kafka.steps == ["init", "begin", "abort", "init", "begin", "commit"]
    assert kafka.produced[3:] == ["key-1", "key-3"]


def test_where_a_transaction_is_refused_for_one_of_its_topics_each_topic_gets_one_of_its_own(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    """A principal that may see a topic and not write to it: librdkafka takes all messages back, and says why at the commit."""
    kafka.once |= dict.fromkeys(("key-1", "key-2", "key-3"), error("_PURGE_QUEUE"))
    kafka.failing_steps["commit"] = deque([error("TOPIC_AUTHORIZATION_FAILED"), error("TOPIC_AUTHORIZATION_FAILED")])
    items = [*THREE, make_item(4, event_key="key-2")]
    first, *others = make_transactional(topic=MANY_TOPICS).call_batch(items)
    assert isinstance(first, Failure)
    assert "kafka: topic orders.key-1: not authorised" in first.reason
    assert others == [None] * 3
    assert kafka.produced[4:] == ["key-1", "key-2", "key-2", "key-3"]


def test_where_a_transaction_is_refused_for_the_only_topic_the_items_wait_and_it_is_named(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.once |= dict.fromkeys(("key-1", "key-2", "key-3"), error("_PURGE_QUEUE"))
    kafka.failing_steps["commit"] = deque([error("TOPIC_AUTHORIZATION_FAILED")])
    results = make_transactional().call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert all("kafka: topic orders: not authorised" in str(result) for result in results)


def test_a_transaction_that_cannot_commit_leaves_all_its_items_pending_with_the_reason(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.failing_steps["commit"] = deque([error("_FENCED", fatal=True)])
    transport = make_transactional()
    results = transport.call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert all("another producer took over its transactional.id" in str(result) for result in results)
    assert "abort" not in kafka.steps
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2


def test_the_first_transaction_of_a_worker_has_all_its_slots_fenced(kafka: FakeKafka) -> None:
    pool = ProducerPool(client=kafka.client, threads=3)
    transport = KafkaTransport(
        topic="orders", bootstrap_servers="b:1", transactional=True, transactional_id="orders", producers=pool
    )
    assert transport.call_batch(THREE) == [None] * 3
    eventually(lambda: kafka.steps.count("init") == 3)
    assert {made.config["transactional.id"] for made in kafka.made} == {"orders-0-0", "orders-0-1", "orders-0-2"}
    assert transport.call_batch(THREE) == [None] * 3
    assert kafka.steps.count("init") == 3
    transport.close()


def test_a_commit_that_may_be_repeated_is_repeated(make_transactional: Make, kafka: FakeKafka) -> None:
    kafka.failing_steps["commit"] = deque([error("COORDINATOR_LOAD_IN_PROGRESS", retriable=True)])
    assert make_transactional().call_batch(THREE) == [None] * 3
    assert kafka.steps == ["init", "begin", "commit", "commit"]


def test_an_abort_that_fails_leaves_it_to_the_next_producer(make_transactional: Make, kafka: FakeKafka) -> None:
    kafka.answers["key-1"] = error("_MSG_TIMED_OUT")
    kafka.failing_steps["abort"] = deque([error("_STATE")])
    transport = make_transactional()
    assert all(isinstance(result, Unavailable) for result in transport.call_batch(THREE))
    kafka.answers.clear()
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2


def test_a_fatal_error_that_the_binding_lost_is_learned_from_the_abort(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.flushing = SystemError("returned NULL without setting an exception")
    kafka.failing_steps["abort"] = deque([error("_FENCED", fatal=True)])
    transport = make_transactional()
    results = transport.call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert all("another producer took over its transactional.id" in str(result) for result in results)
    kafka.flushing = None
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2


def test_a_fatal_error_that_the_binding_lost_for_good_is_told_as_such(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.flushing = SystemError("returned NULL without setting an exception")
    results = make_transactional().call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert "fatal error of the producer, which was replaced (_FATAL: SystemError: returned NULL" in str(results[0])
    assert kafka.steps == ["init", "begin", "abort"]


def test_an_abort_whose_error_the_binding_lost_counts_no_attempt(make_transactional: Make, kafka: FakeKafka) -> None:
    kafka.failing_steps["commit"] = deque([error("_STATE")])
    kafka.failing_steps["abort"] = deque([SystemError("returned NULL without setting an exception")])
    transport = make_transactional()
    results = transport.call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert "_STATE" in str(results[0])
    assert transport.call_batch(THREE) == [None] * 3
    assert len(kafka.made) == 2


def test_a_transaction_spoilt_for_good_by_one_message_leaves_the_others_pending(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.answers["key-2"] = error("INVALID_MSG")
    first, second, third = make_transactional().call_batch(THREE)
    assert isinstance(second, Failure)
    assert isinstance(first, Unavailable)
    assert "not committed with its transaction" in str(first)
    assert third == first


def test_a_transactional_producer_that_no_broker_answers_says_that_nothing_was_sent(
    make_transactional: Make, kafka: FakeKafka
) -> None:
    kafka.failing_steps["init"] = deque([error("_TIMED_OUT")])
    results = make_transactional().call_batch(THREE)
    assert all(isinstance(result, Unavailable) for result in results)
    assert "no broker answered within 20 s; nothing was sent" in str(results[0])
    assert kafka.produced == []
