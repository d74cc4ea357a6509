"""A stand-in for librdkafka's consumer over a log in memory, which raises wherever a test's dice say so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from boxengine.adapters.kafka.consumer_client import ConsumerClient
from tests.unit.transports.fake_kafka import error

TOPIC = "orders"
Trip = Callable[[str], None]


class Entry(NamedTuple):
    """One message of the log."""

    value: bytes
    offset: int
    partition: int


@dataclass(slots=True)
class FaultyKafka:
    """The log, the group's offsets, and the dice; ``client`` goes into a ``KafkaSource``."""

    log: Mapping[int, Sequence[bytes]]
    trip: Trip
    """Called with the name of each step, before and after it; may raise."""
    committed: dict[int, int] = field(default_factory=dict)
    metadata: dict[int, str] = field(default_factory=dict)
    """What was committed with the offsets."""
    topic_id: str = "first"

    def client(self) -> ConsumerClient:
        topics: Any = SimpleNamespace(ids=self.topic_ids, troubles=dict.fromkeys)
        return ConsumerClient(
            lambda config, logger: FaultyConsumer(self, online="bootstrap.servers" in config),
            TopicPartition,
            type(error("_FAIL")),
            KafkaException,
            lambda _config: topics,
        )

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Those of the topics."""
        self.trip("topic_ids")
        return dict.fromkeys(topics, self.topic_id)


class FaultyConsumer:
    """What a ``KafkaSource`` calls. It hands out each message once, wherever it is told to go."""

    def __init__(self, kafka: FaultyKafka, *, online: bool) -> None:
        self._kafka = kafka
        self._online = online
        self._positions: dict[int, int] = {}
        self._paused: set[int] = set()
        self._callbacks: dict[str, Any] = {}

    def subscribe(self, _topics: Sequence[str], **callbacks: Any) -> None:
        self._callbacks = callbacks

    def poll(self, _timeout: float) -> Any:
        self._step("poll")
        if not self._positions:
            self._positions = {number: self._kafka.committed.get(number, 0) for number in self._kafka.log}
            self._callbacks["on_assign"](self, [TopicPartition(TOPIC, number) for number in self._kafka.log])
        found = self._take(1)
        # librdkafka destroys a message that it took where a callback raises before it is handed over.
        self._step("polled")
        return found[0] if found else None

    def consume(self, count: int, *, timeout: float) -> list[Any]:
        self._step("consume")
        found = self._take(count)
        self._step("consumed")
        return found

    def list_topics(self, _topic: str = "", *, timeout: float) -> Any:
        self._step("list_topics")
        return SimpleNamespace(cluster_id="cluster")

    def seek(self, place: TopicPartition) -> None:
        self._step("seek")
        self._positions[place.partition] = max(0, place.offset)  # the beginning has a number of its own

    def pause(self, places: Sequence[TopicPartition]) -> None:
        self._step("pause")
        self._paused |= {each.partition for each in places}

    def resume(self, places: Sequence[TopicPartition]) -> None:
        self._step("resume")
        self._paused -= {each.partition for each in places}

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self._step("commit")
        self._kafka.committed.update({each.partition: each.offset for each in offsets})
        self._kafka.metadata.update({each.partition: each.metadata or "" for each in offsets})
        self._step("committed")
        return list(offsets)

    def committed(self, places: Sequence[TopicPartition], *, timeout: float) -> list[TopicPartition]:
        self._step("ask_committed")
        offsets, metadata = self._kafka.committed, self._kafka.metadata
        numbers = [each.partition for each in places]
        return [TopicPartition(TOPIC, each, offsets.get(each, -1001), metadata.get(each, "")) for each in numbers]

    def close(self) -> None:
        if self._online and self._positions:
            self._callbacks["on_revoke"](self, [TopicPartition(TOPIC, number) for number in self._kafka.log])
            self._step("close")

    def _step(self, name: str) -> None:
        if self._online:
            self._kafka.trip(name)

    def _take(self, count: int) -> list[Any]:
        found: list[Any] = []
        for number, values in self._kafka.log.items():
            start = self._positions[number]
            if number not in self._paused:
                taken = values[start : start + count - len(found)]
                found += [
                    FaultyMessage(Entry(value, start + place, number), self._kafka.trip)
                    for place, value in enumerate(taken)
                ]
                self._positions[number] += len(taken)
        return found


class FaultyMessage:
    """Looks like confluent-kafka's; reading a part of it may raise."""

    def __init__(self, entry: Entry, trip: Trip) -> None:
        self._entry = entry
        self._trip = trip

    def error(self) -> None:
        self._trip("error")

    def topic(self) -> str:
        self._trip("topic")
        return TOPIC

    def partition(self) -> int:
        return self._entry.partition

    def offset(self) -> int:
        self._trip("offset")
        return self._entry.offset

    def key(self) -> bytes:
        self._trip("key")
        return b"7"

    def value(self) -> bytes:
        self._trip("value")
        return self._entry.value

    def headers(self) -> None:
        self._trip("headers")

    def timestamp(self) -> tuple[int, int]:
        self._trip("timestamp")
        return 1, 1_700_000_000_000
