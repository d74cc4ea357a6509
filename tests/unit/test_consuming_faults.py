"""Whatever is raised between receiving and storing leads back to the committed offset, never past it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaException

from boxengine.adapters.kafka.consumer import KafkaSource
from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.box import Box, BoxType
from boxengine.domain.message import ReceivedMessage
from boxengine.engine.consuming.loop import ConsumeLimits, Consumer
from boxengine.engine.observation import NullObserver
from boxengine.engine.running.outages import Outages
from boxengine.errors import GraveUnavailable, InvalidItem, StoreUnavailable
from boxengine.ports import InboxTransaction
from tests.unit.transports.fake_kafka import error
from tests.unit.transports.faulty_consumer import TOPIC, FaultyKafka

BOX = Box(name="order_inbox_item", type=BoxType.INBOX, table="order_inbox_items")
PARTITIONS, EACH = 3, 40
SEEDS = 100
Fault = Callable[[], BaseException]
FAULTS: list[Fault] = [
    lambda: KafkaException(error("_TRANSPORT")),
    lambda: KafkaException(error("_FATAL", fatal=True)),
    lambda: KafkaException(error("_STATE")),
    lambda: ValueError("no date"),
    MemoryError,
    lambda: RuntimeError("a callback broke"),
]
GONE: list[Fault] = [lambda: StoreUnavailable("gone")]


STORING = frozenset({"bury", "commit"})
"""Steps at which a bad message is put away, or a batch is stored."""


class Dice:
    """Raises at one step in twenty, as long as faults are left; with ``storing`` at half of those that store, and few others."""

    def __init__(self, seed: int, faults: int = 60, *, storing: bool = False) -> None:
        self.random = Random(seed)
        self.left = faults
        self._storing = storing

    def __call__(self, step: str, faults: Sequence[Fault] = tuple(FAULTS)) -> None:
        chance = 0.05 if not self._storing else 0.5 if step in STORING else 0.002
        if self.left and self.random.random() < chance:
            self.left -= 1
            raise self.random.choice(faults)()


class Base:
    """Database and dead letters in lists; they fail as well."""

    def __init__(self, dice: Dice) -> None:
        self.session: Any = self
        self.dice = dice
        self.stored: list[tuple[int, int]] = []
        self.dead: set[tuple[int, int]] = set()

    def columns(self, box: Box) -> frozenset[str]:
        self.dice("columns", GONE)
        return frozenset({"dedup_key", "event_key", "payload"})

    @contextmanager
    def transaction(self, box: Box) -> Iterator[InboxTransaction]:
        before = list(self.stored)
        try:
            yield self
            self.dice("commit", [*GONE, lambda: ValueError("a middleware broke")])
        except BaseException:
            self.stored = before
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        before = list(self.stored)
        try:
            yield
        except BaseException:
            self.stored = before
            raise

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        self.dice("look", GONE)
        return {}

    def stored_payloads(self, item_ids: Sequence[int]) -> Mapping[int, bytes]:
        return {}

    def reject(self, item_id: int, reason: str) -> None:
        raise AssertionError

    def create_batch(
        self, session: Any, batch: Sequence[Mapping[str, Any]], /, *, known: set[int] | None = None
    ) -> list[int]:
        ids = []
        for attributes in batch:
            if attributes["payload"].startswith(b"bad"):
                raise InvalidItem("refused")
            _, number, offset = attributes["dedup_key"].partition("@")[0].split(":")
            place = int(number), int(offset)
            if place not in self.stored:
                self.stored.append(place)
            ids.append(self.stored.index(place))
        return ids

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:
        self.dice("bury", [*GONE, lambda: GraveUnavailable("refused")])
        self.dead.add((message.partition, message.offset))
        return True


@pytest.mark.parametrize(
    ("seed", "storing"), [*((seed, False) for seed in range(SEEDS)), *((seed, True) for seed in range(SEEDS // 4))]
)
def test_after_any_exception_anywhere_nothing_is_lost_and_no_offset_is_committed_before_its_message(
    seed: int, storing: bool
) -> None:
    dice = Dice(seed, storing=storing)
    values = {
        number: [b"bad" if dice.random.random() < 0.1 else b"good" for _ in range(EACH)] for number in range(PARTITIONS)
    }
    kafka = FaultyKafka(values, dice)
    base, clock = Base(dice), ManualClock()
    config = {"bootstrap.servers": "fake", "group.id": "g"}
    source = KafkaSource(topics=["orders"], config=config, client=kafka.client)
    consumer = Consumer(
        BOX,
        source,
        inbox=base,
        create_batch=base.create_batch,
        dead_letters=base,
        outages=Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=clock),
        error_tracker=lambda *_, **__: None,
        observer=NullObserver(),
        clock=clock,
        limits=ConsumeLimits(batch_size=16),
    )
    for _ in range(600):
        with suppress(Exception):
            consumer.turn()
        clock.advance(timedelta(seconds=30))
        for number, offset in kafka.committed.items():
            done = {place for place in (*base.stored, *base.dead) if place[0] == number}
            missing = [place for place in range(offset) if (number, place) not in done]
            assert missing == [], "an offset was committed past messages that are neither stored nor dead letters"
        if not dice.left and kafka.committed == dict.fromkeys(values, EACH):
            break
    assert kafka.committed == dict.fromkeys(values, EACH)
    for number in range(PARTITIONS):
        assert [offset for where, offset in base.stored if where == number] == [
            offset for offset, value in enumerate(values[number]) if value == b"good"
        ]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_is_received_at_once_than_was_asked_for(limit: int) -> None:
    kafka = FaultyKafka({0: [b"good"] * 5}, lambda _step: None)
    source = KafkaSource(topics=["orders"], config={"bootstrap.servers": "fake", "group.id": "g"}, client=kafka.client)
    assert len(source.receive(limit, wait=timedelta(0))) == limit


def test_a_deleted_topic_whose_offsets_cannot_be_committed_does_not_keep_the_consumer_from_polling() -> None:
    def trip(step: str) -> None:
        if step == "commit":
            raise KafkaException(error("UNKNOWN_TOPIC_OR_PART"))

    kafka = FaultyKafka({0: [b"first", b"second"]}, trip)
    source = KafkaSource(topics=[TOPIC], config={"bootstrap.servers": "b:1"}, client=kafka.client)
    for value in (b"first", b"second"):
        messages = source.receive(1, wait=timedelta(0))
        assert [each.value for each in messages] == [value]
        source.acknowledge(messages)
    source.close()
