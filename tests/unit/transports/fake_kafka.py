"""A stand-in for librdkafka that reports whatever error a test asks for; the real ones seldom can be made to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from queue import Empty, Queue
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from boxengine.adapters.kafka.client import Client

Answer = Callable[[bytes], KafkaError | None]


def error(name: str, *, fatal: bool = False, retriable: bool = False) -> KafkaError:
    """A ``KafkaError`` as librdkafka would report it."""
    return KafkaError(getattr(KafkaError, name), f"fake {name}", fatal, retriable, False)


class FakeProducer:
    """Answers each message at the next ``poll`` with what ``answer`` says of its key."""

    def __init__(self, config: Mapping[str, Any], broker: FakeKafka) -> None:
        self.config = config
        self.number = len(broker.made)
        self.purged = False
        self._broker = broker
        self._late: list[Callable[..., None]] = []
        # No SimpleQueue: before Python 3.13, if another thread takes the report that a waiting one was woken for, that one may
        # wait without limit, whatever its timeout.
        self._reports: Queue[tuple[Callable[..., None], KafkaError | None]] = Queue()

    def produce(
        self,
        topic: str,
        value: bytes,
        key: str,
        partition: int,
        *,
        on_delivery: Callable[..., None],
        timestamp: int,
        headers: object,
    ) -> None:
        self._broker.produced.append(key)
        self._broker.through.append(self.number)
        answer = self._broker.once.pop(key, None) or self._broker.answers.get(key)
        if answer is not None and answer.code() == KafkaError._TIMED_OUT:
            self._late.append(on_delivery)
        else:
            self._reports.put((on_delivery, answer))

    def acknowledge_late(self) -> None:
        """Reports what was not reported so far."""
        for callback in self._late:
            self._reports.put((callback, None))

    def poll(self, timeout: float) -> int:
        try:
            callback, answer = self._reports.get(timeout=timeout) if timeout else self._reports.get_nowait()
        except Empty:
            return 0
        callback(answer, None)
        return 1

    def list_topics(self, topic: str, timeout: float) -> object:
        self._broker.asked += 1
        if self._broker.away is not None:
            self.config["error_cb"](self._broker.away)
            raise KafkaException(error("_TRANSPORT"))
        return None

    def flush(self, timeout: float) -> int:
        if self._broker.flushing is not None:
            raise self._broker.flushing
        while self.poll(0):
            pass
        return len(self)

    def purge(self, *, blocking: bool = True) -> None:
        self.purged = True

    def __len__(self) -> int:
        return self._reports.qsize()

    def init_transactions(self, timeout: float) -> None:
        self._step("init")

    def begin_transaction(self) -> None:
        self._step("begin")

    def commit_transaction(self, timeout: float) -> None:
        self._step("commit")

    def abort_transaction(self, timeout: float) -> None:
        self._step("abort")

    def _step(self, name: str) -> None:
        self._broker.steps.append(name)
        if failures := self._broker.failing_steps.get(name):
            failure = failures.popleft()
            raise failure if isinstance(failure, Exception) else KafkaException(failure)


class FakeKafka:
    """What the fakes share; ``client()`` goes into a ``ProducerPool``."""

    def __init__(self) -> None:
        self.answers: dict[str, KafkaError] = {}
        """Error by message key, others are acknowledged; ``_TIMED_OUT``: never reported at all."""
        self.once: dict[str, KafkaError] = {}
        """The same, for the first time only."""
        self.through: list[int] = []
        """Which producer each message was given to, by its place in ``made``."""
        self.limit: int | None = None
        """``max.message.bytes`` of every topic; None: the broker does not tell."""
        self.failing_steps: dict[str, deque[KafkaError | SystemError]] = {}
        """Errors of the steps of transactions: init, begin, commit, abort. A ``SystemError`` is raised as it is."""
        self.flushing: Exception | None = None
        """What ``flush`` raises; None: it waits for the reports."""
        self.away: KafkaError | None = None
        """Why no broker answers; None: they do."""
        self.refusing: KafkaError | None = None
        """Why no producer can be made; None: they can."""
        self.asked = 0
        """How often a producer asked whether a broker is there."""
        self.made: list[FakeProducer] = []
        self.produced: list[str] = []
        self.steps: list[str] = []

    def client(self) -> Client:
        return Client(self._make, KafkaError, KafkaException, self._largest_message)

    def _largest_message(self, _config: Mapping[str, Any], _topic: str, _seconds: float) -> int:
        if self.limit is None:
            raise KafkaException(error("CLUSTER_AUTHORIZATION_FAILED"))
        return self.limit

    def _make(self, config: Mapping[str, Any], logger: object) -> FakeProducer:
        if self.refusing is not None:
            raise KafkaException(self.refusing)
        producer = FakeProducer(config, self)
        if "bootstrap.servers" in config:
            self.made.append(producer)
        return producer
