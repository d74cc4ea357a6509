"""A worker's part of the history."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import uuid4

import pytest

from boxengine.adapters.memory.attempts import MemoryAttempts
from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.history import MemoryHistory
from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from boxengine.engine.running.history import INTERVAL, MOST_ATTEMPTS, HistoryRecorder
from boxengine.errors import QueueUnavailable
from boxengine.ports import events
from boxengine.ports.people.history import Calls, Happened, Span

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="items")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def item(clock: ManualClock, item_id: int, *, age: float) -> Item:
    created = clock.now() - timedelta(seconds=age)
    return Item(item_id, str(uuid4()), None, "k", 0, 0, None, b"", 0, created, None, BOX, clock.now())


def attempt(item_id: int) -> FailedAttempt:
    return FailedAttempt(item_id, Status.PENDING, 1, "why")


def test_batches_are_counted_and_handed_on_together(clock: ManualClock) -> None:
    history = MemoryHistory()
    recorder = HistoryRecorder(history, MemoryAttempts(), clock=clock)
    items = [item(clock, 1, age=0.02), item(clock, 2, age=500), item(clock, 3, age=4)]
    recorder.see(events.Settled(BOX, items, Settlement(delivered=[1, 2, 3]), seconds=0.1))
    recorder.see(events.Settled(BOX, items, Settlement(delivered=[1], failed=[attempt(2), attempt(3)]), seconds=0.1))
    recorder.see(events.Settled(BOX, items, Settlement(), seconds=0.1))
    assert history.lately([BOX.name], now=clock.now()) == {BOX.name: Happened()}, "nothing is sent with a batch"
    assert recorder.turn() == INTERVAL
    assert history.lately([BOX.name], now=clock.now()) == {BOX.name: Happened(4, 2, {2: 1, 9: 1})}
    recorder.turn()  # nothing new
    assert history.read(BOX.name, Span.HOUR, now=clock.now())[-1].happened.delivered == 4


def test_while_redis_is_out_nothing_is_kept_and_nothing_is_raised(clock: ManualClock) -> None:
    class Out(MemoryHistory):
        def add(self, happened: Mapping[str, Happened], *, now: object) -> None:
            raise QueueUnavailable("refused")

    recorder = HistoryRecorder(Out(), MemoryAttempts(), clock=clock)
    recorder.see(events.Settled(BOX, [item(clock, 1, age=1)], Settlement(delivered=[1]), seconds=0.1))
    recorder.turn()
    recorder.flush()


def test_transports_are_counted_by_name_with_the_time_that_they_took(clock: ManualClock) -> None:
    history = MemoryHistory()
    recorder = HistoryRecorder(history, MemoryAttempts(), clock=clock)
    recorder.see(events.Transported(BOX, "http", items=10, failed=2, seconds=1.5, calls=10))
    recorder.see(events.Transported(BOX, "kafka", items=10, failed=0, seconds=0.25))
    recorder.turn()
    recorder.see(events.Transported(BOX, "http", items=5, failed=0, seconds=0.5, calls=5))
    recorder.turn()
    transports = history.lately([BOX.name], now=clock.now())[BOX.name].transports
    assert transports == {"http": Calls(15, 15, 2, 2.0), "kafka": Calls(1, 10, 0, 0.25)}
    assert transports["kafka"].per_call == 0.25


def test_why_attempts_failed_is_kept_for_the_last_of_them(clock: ManualClock) -> None:
    attempts = MemoryAttempts()
    recorder = HistoryRecorder(MemoryHistory(), attempts, clock=clock)
    items = [item(clock, item_id, age=1) for item_id in range(MOST_ATTEMPTS + 1)]
    log = "2026-01-31T12:00:00.000000Z http: Timeout: no answer\nTraceback"
    failed = [FailedAttempt(each.id, Status.PENDING, 3, log) for each in items]
    recorder.see(events.Settled(BOX, items, Settlement(failed=failed), seconds=0.1))
    recorder.flush()
    first, *_, last = items
    (attempt,) = attempts.of(BOX.name, last.id, last.uuid)
    assert (attempt.number, attempt.reason, attempt.at) == (3, "http: Timeout: no answer", clock.now())
    assert attempts.of(BOX.name, first.id, first.uuid) == [], "of thousands some tell why"
