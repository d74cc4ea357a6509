"""The consumer's decisions, without any server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.source import MemorySource
from boxengine.domain.box import Box, BoxType
from boxengine.domain.message import ReceivedMessage
from boxengine.engine.consuming import LAG_EVERY, ConsumeLimits, Consumer
from boxengine.engine.observation import NullObserver
from boxengine.engine.outages import Outages
from boxengine.errors import InvalidItem, StoreUnavailable
from boxengine.ports import Consumed, InboxTransaction, TopicPartition

BOX = Box(name="order_inbox_item", type=BoxType.INBOX, table="order_inbox_items")


def message(offset: int, *, partition: int = 0, value: str = "good") -> ReceivedMessage:
    return ReceivedMessage("orders", partition, offset, b"7", value.encode())


class Counts(NullObserver):
    """What the consumer tells."""

    def __init__(self) -> None:
        self.consumed_batches: list[dict[TopicPartition, Consumed]] = []
        self.lags: list[dict[TopicPartition, int]] = []

    def consumed(self, box: Box, counts: Mapping[TopicPartition, Consumed], *, seconds: float) -> None:
        self.consumed_batches.append(dict(counts))

    def lagging(self, box: Box, lags: Mapping[TopicPartition, int]) -> None:
        self.lags.append(dict(lags))


class World:
    """An inbox and dead letters in lists, with transactions that can be undone; the message ``bad`` is refused."""

    def __init__(self, *messages: ReceivedMessage, graves: bool = True) -> None:
        self.session: Any = self
        self.stored: list[str] = []
        self.dead: list[str] = []
        self.told: list[str] = []
        self.calls: list[int] = []
        self.failing: list[Exception] = []
        self.clock = ManualClock()
        self.observer = Counts()
        self._graves = graves
        self.source = MemorySource(messages)
        self.consumer = Consumer(
            BOX,
            self.source,
            inbox=self,
            create_batch=self.create_batch,
            dead_letters=self,
            outages=Outages(observer=NullObserver(), error_tracker=self.tell, clock=self.clock),
            error_tracker=self.tell,
            observer=self.observer,
            clock=self.clock,
            limits=ConsumeLimits(batch_size=100),
        )

    def columns(self, box: Box) -> frozenset[str]:
        return frozenset({"dedup_key", "event_key", "payload"})

    @contextmanager
    def transaction(self, box: Box) -> Iterator[InboxTransaction]:
        before = list(self.stored), list(self.dead)
        try:
            yield self
            self._commit()
        except BaseException:
            self.stored, self.dead = before
            raise

    def _commit(self) -> None:
        if self.failing:
            raise self.failing.pop()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        before = list(self.stored)
        try:
            yield
        except BaseException:
            self.stored = before
            raise

    def reject(self, item_id: int, reason: str) -> None:
        raise AssertionError

    def create_batch(
        self, session: Any, batch: Sequence[Mapping[str, Any]], /, *, known: set[int] | None = None
    ) -> list[int]:
        self.calls.append(len(batch))
        before, ids = list(self.stored), list[int]()
        for attributes in batch:
            assert attributes.keys() == {"dedup_key", "event_key", "payload"}
            if attributes["payload"] == b"bad":
                raise InvalidItem("refused")
            key = attributes["dedup_key"]
            if key not in self.stored:
                self.stored.append(key)
            ids.append(self.stored.index(key))
        if known is not None:
            known.update(id_ for id_ in ids if id_ < len(before))
        return ids

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> None:
        if not self._graves:
            raise InvalidItem("no grave")
        self.dead.append(f"{message.place} {reason}")

    def tell(self, error: BaseException | str, /, **context: Any) -> None:
        self.told.append(str(error))


def test_a_batch_is_stored_at_once_and_then_acknowledged() -> None:
    world = World(*map(message, range(5)))
    assert not world.consumer.turn()
    assert world.stored == [f"orders:0:{n}" for n in range(5)]
    assert world.calls == [5]
    assert world.source.committed == {("orders", 0): 5}


def test_the_guilty_message_is_found_by_halving_and_the_others_keep_their_order() -> None:
    world = World(*(message(n, value="bad" if n == 37 else "good") for n in range(100)))
    world.consumer.turn()
    assert world.stored == [f"orders:0:{n}" for n in range(100) if n != 37]
    assert world.dead == ["orders:0:37 refused"]
    assert len(world.calls) < 20
    assert world.source.committed == {("orders", 0): 100}
    assert len(world.told) == 1
    assert "orders:0:37" in world.told[0]


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), ValueError("a middleware broke")])
def test_what_is_not_stored_is_not_acknowledged_and_comes_again(error: Exception) -> None:
    world = World(message(0), message(1, value="bad"), message(2))
    world.failing = [error]
    if isinstance(error, StoreUnavailable):
        assert world.consumer.turn()
    else:
        with pytest.raises(ValueError, match="broke"):
            world.consumer.turn()
    assert (world.stored, world.dead, world.source.committed) == ([], [], {})
    assert not any("dead letters" in each for each in world.told), "nothing was buried yet"
    world.consumer.turn()
    assert world.stored == ["orders:0:0", "orders:0:2"]
    assert world.source.committed == {("orders", 0): 3}


def test_a_message_without_a_grave_halts_its_partition_and_no_other() -> None:
    first = [message(n, value="bad" if n == 2 else "good") for n in range(4)]
    world = World(*first, *(message(n, partition=1) for n in range(3)), graves=False)
    world.consumer.turn()
    assert world.stored == ["orders:0:0", "orders:0:1", "orders:1:0", "orders:1:1", "orders:1:2"]
    assert world.source.committed == {("orders", 0): 2, ("orders", 1): 3}
    assert world.source.halted == {("orders", 0): 2}
    assert "stopped at offset 2" in world.told[0]
    world.consumer.turn()
    assert len(world.told) == 1


def test_an_outage_of_the_store_is_waited_out_with_growing_pauses_and_told_to_no_error_tracker() -> None:
    world = World(message(0))
    world.failing = [StoreUnavailable("gone") for _ in range(4)]
    pauses = [world.consumer.turn() for _ in range(4)]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1]
    assert world.told == []


def test_each_commit_tells_how_many_messages_were_new_known_and_dead_by_partition() -> None:
    again = message(1)._replace(headers=(("Idempotency-Key", b"orders:0:0"),))
    world = World(message(0), again, message(2, value="bad"), message(0, partition=1))
    world.consumer.turn()
    assert world.observer.consumed_batches == [{("orders", 0): Consumed(3, 1, 1), ("orders", 1): Consumed(1)}]
    world.source.put_back([message(0)])
    world.consumer.turn()
    assert world.observer.consumed_batches[1] == {("orders", 0): Consumed(3, 2, 1)}


def test_what_is_not_committed_is_not_told() -> None:
    world = World(message(0))
    world.failing = [StoreUnavailable("gone")]
    world.consumer.turn()
    assert world.observer.consumed_batches == []
    world.consumer.turn()
    assert world.observer.consumed_batches == [{("orders", 0): Consumed(1)}]


@pytest.mark.parametrize("error", [StoreUnavailable("gone"), ValueError("a middleware broke")])
def test_the_lag_is_told_now_and_then_also_while_nothing_can_be_stored(error: Exception) -> None:
    world = World(*map(message, range(5)))
    world.failing = [error]
    with contextlib.suppress(ValueError):
        world.consumer.turn()
    world.consumer.turn()
    assert world.observer.lags == [{("orders", 0): 5}]
    world.clock.advance(timedelta(seconds=LAG_EVERY))
    world.consumer.turn()
    assert world.observer.lags == [{("orders", 0): 5}, {("orders", 0): 0}]
