"""Which thread destroys a producer: librdkafka may wait for ever there, so a thread that delivers must not."""

import gc
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, current_thread
from threading import enumerate as threads
from typing import Any
from weakref import WeakSet

import pytest
from confluent_kafka import admin

from boxengine.adapters.kafka import live
from boxengine.adapters.kafka.client import largest_message
from boxengine.adapters.kafka.farewell import THREAD
from boxengine.adapters.kafka.pool import ProducerPool
from boxengine.adapters.kafka.transport import KafkaTransport
from boxengine.errors import Unavailable
from tests.eventually import PATIENCE, eventually
from tests.unit.transports.fake_kafka import FakeKafka, FakeProducer, error
from tests.unit.transports.items import make_item

Make = Callable[..., KafkaTransport]
REPORTS = "boxengine-kafka-reports"
THREE = [make_item(number) for number in (1, 2, 3)]


class HangingProducer(FakeProducer):
    """Takes nothing back and is not destroyed before the test allows it."""

    _broker: "HangingKafka"

    def purge(self, *, blocking: bool = True) -> None:
        super().purge(blocking=blocking)
        if blocking:
            self._broker.purges.wait(PATIENCE)
            self._broker.taken_back = True

    def __len__(self) -> int:
        return super().__len__() + self._broker.never_reported

    def __del__(self) -> None:
        self._broker.destroyed.append(current_thread().name)
        self._broker.destroys.wait(PATIENCE)


class HangingKafka(FakeKafka):
    """Refers to no producer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.purges = Event()
        self.destroys = Event()
        self.destroyed: list[str] = []
        """The thread's name, for each producer that is being destroyed."""
        self.living = WeakSet[FakeProducer]()
        self.never_reported = 0
        self.taken_back = False

    def _make(self, config: Mapping[str, Any], logger: object) -> FakeProducer:
        if "bootstrap.servers" not in config:
            return super()._make(config, logger)
        producer = HangingProducer(config, self)
        self.living.add(producer)
        return producer


@pytest.fixture
def kafka() -> Iterator[HangingKafka]:
    kafka = HangingKafka()
    kafka.purges.set()
    yield kafka
    kafka.purges.set()
    kafka.destroys.set()


@pytest.fixture
def make(kafka: HangingKafka, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.setattr(live, "POLL", 0.01)

    def make(**arguments: Any) -> KafkaTransport:
        settings: dict[str, Any] = {"topic": "orders", "bootstrap_servers": "b:1", "delivery_timeout": 0.05}
        return KafkaTransport(producers=ProducerPool(client=kafka.client), **settings | arguments)

    return make


@pytest.fixture
def make_transactional(make: Make) -> Make:
    return lambda **arguments: make(transactional=True, transactional_id="orders", **arguments)


def assert_destroyed_by(name: str, kafka: HangingKafka) -> None:
    """Whatever is left in a cycle would be destroyed by any thread at any time: here and now by this one."""
    gc.collect()
    eventually(lambda: kafka.destroyed)
    assert kafka.destroyed == [name]


def test_the_reports_thread_destroys_a_producer_that_was_given_up(make: Make, kafka: HangingKafka) -> None:
    kafka.answers["key-2"] = error("_TIMED_OUT")
    transport = make()
    assert isinstance(transport.call_batch(THREE)[1], Unavailable)
    assert_destroyed_by(REPORTS, kafka)
    kafka.answers.clear()
    assert transport.call_batch(THREE) == [None] * 3


def test_the_reports_thread_destroys_a_producer_that_is_closed(make: Make, kafka: HangingKafka) -> None:
    transport = make()
    transport.call_batch(THREE)
    transport.close()
    assert_destroyed_by(REPORTS, kafka)


def test_the_reports_thread_destroys_the_producer_of_single_messages(make: Make, kafka: HangingKafka) -> None:
    kafka.limit = 10_000
    kafka.answers["key-2"] = error("_TIMED_OUT")
    transport = make()
    large = make_item(2, payload=b"x" * 20_000)
    assert isinstance(transport.call_batch([large])[0], Unavailable)
    assert_destroyed_by(REPORTS, kafka)
    kafka.answers.clear()
    assert transport.call_batch([large]) == [None]


def test_a_producer_that_another_thread_still_uses_is_not_destroyed(make: Make, kafka: HangingKafka) -> None:
    kafka.answers["key-1"] = error("_TIMED_OUT")
    kafka.answers["key-2"] = error("_FATAL", fatal=True)
    transport = make(delivery_timeout=PATIENCE)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(transport.call_batch, THREE[:1])
        eventually(lambda: "key-1" in kafka.produced)
        transport.call_batch(THREE[1:2])
        assert kafka.destroyed == []
        (producer,) = kafka.living
        producer.acknowledge_late()
        del producer
        assert waiting.result(PATIENCE) == [None]
    assert_destroyed_by(REPORTS, kafka)


def test_each_thread_that_gives_a_batch_up_has_messages_taken_back(make: Make, kafka: HangingKafka) -> None:
    """One may have handed messages over after those of another were taken back."""
    kafka.answers["key-1"] = error("_TIMED_OUT")
    kafka.answers["key-2"] = error("_FATAL", fatal=True)
    transport = make(delivery_timeout=3)  # so long that the first thread still waits when the second gives up
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(transport.call_batch, THREE[:1])
        eventually(lambda: "key-1" in kafka.produced)
        transport.call_batch(THREE[1:2])
        # Not asked of the producer: who held the last reference would destroy it.
        assert kafka.taken_back
        kafka.taken_back = False
        assert isinstance(waiting.result(PATIENCE)[0], Unavailable)
        assert kafka.taken_back
    assert_destroyed_by(REPORTS, kafka)


def test_a_producer_that_takes_nothing_back_does_not_keep_its_batch(
    make: Make, kafka: HangingKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "TAKING_BACK", 0.05)
    kafka.purges.clear()
    kafka.answers["key-2"] = error("_TIMED_OUT")
    transport = make()
    assert isinstance(transport.call_batch(THREE)[1], Unavailable)
    (hanging,) = kafka.living
    assert hanging.purged
    assert not kafka.taken_back
    kafka.answers.clear()
    assert transport.call_batch(THREE) == [None] * 3
    transport.close()


def test_a_reports_thread_does_not_wait_for_ever_for_reports_that_never_come(
    make: Make, kafka: HangingKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LAST_REPORTS", 0.05)
    kafka.destroys.set()
    kafka.never_reported = 1
    before = set(threads())
    transport = make()
    transport.call_batch(THREE)
    transport.close()
    eventually(lambda: not [each for each in threads() if each.name == REPORTS and each not in before])


@pytest.mark.parametrize("step", ["init", "commit"])
def test_no_delivery_thread_destroys_a_transactional_producer_that_failed(
    make_transactional: Make, kafka: HangingKafka, step: str
) -> None:
    kafka.purges.clear()
    kafka.failing_steps[step] = deque([error("_TIMED_OUT")])
    transport = make_transactional()
    assert all(isinstance(result, Unavailable) for result in transport.call_batch(THREE))
    assert transport.call_batch(THREE) == [None] * 3
    kafka.purges.set()
    assert_destroyed_by(THREAD, kafka)


def test_a_closing_thread_destroys_no_transactional_producer(make_transactional: Make, kafka: HangingKafka) -> None:
    kafka.purges.clear()
    transport = make_transactional()
    transport.call_batch(THREE)
    transport.close()
    kafka.purges.set()
    assert_destroyed_by(THREAD, kafka)


def test_the_client_that_asks_for_a_topics_limit_is_destroyed_by_a_thread_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destroyed: list[str] = []

    class SilentAdmin:
        def __init__(self, _config: Mapping[str, Any], logger: object) -> None:
            pass

        def describe_configs(self, _resources: object, request_timeout: float) -> Any:
            unanswered = Future[Any]()
            unanswered.set_exception(TimeoutError())
            return defaultdict(lambda: unanswered)

        def __del__(self) -> None:
            destroyed.append(current_thread().name)

    monkeypatch.setattr(admin, "AdminClient", SilentAdmin)
    with pytest.raises(TimeoutError):
        largest_message({}, "orders", 1.0)
    eventually(lambda: destroyed)
    assert destroyed == [THREAD]
