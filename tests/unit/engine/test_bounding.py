"""How a worker's loops deal with bounds: who advances them, and who makes them be forgotten."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.wakeups import MemoryWakeups
from boxengine.domain.box import Box, BoxType
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.bounding import BoundsWatch
from boxengine.engine.polling.listener import Listener
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.tasks import Check, Look, Task
from boxengine.engine.running.outages import Outages
from boxengine.errors import SchemaMismatch, StoreUnavailable
from boxengine.ports import Signal
from boxengine.ports.events import Event

BOXES = [Box(name=name, type=BoxType.OUTBOX, table=name, bucket_size=4) for name in ("orders", "payments")]


class Store:
    """Rows have come back in one bucket of the second box; the first box has no table."""

    def bounded(self, _box: Box) -> bool:
        return True

    def read_from_start(self, box_name: str) -> None:
        raise NotImplementedError

    def advance(self, box: Box) -> Collection[int]:
        if box is BOXES[0]:
            raise SchemaMismatch("there is no table")
        return [3]


def due(schedule: Schedule) -> list[Task]:
    """What is due now, but for the checks with which a worker begins."""
    tasks = []
    while (task := schedule.take(wait=0.0)) is not None:
        tasks.append(task)
    return [task for task in tasks if not isinstance(task, Check)]


def test_a_bucket_in_which_rows_came_back_is_looked_at_whatever_becomes_of_other_boxes() -> None:
    clock = ManualClock()
    schedule = Schedule(BOXES, partitions=2, clock=clock)
    outages = Outages(observer=NullObserver(), error_tracker=lambda *_error, **_context: None, clock=clock)
    BoundsWatch(BOXES, store=Store(), ping=lambda: None, schedule=schedule, outages=outages, clock=clock).turn()
    assert due(schedule) == [Look(BOXES[1], 1)]


def test_a_database_that_is_away_is_asked_for_one_box_and_not_for_all() -> None:
    class Away(Store):
        def advance(self, box: Box) -> Collection[int]:
            asked.append(box.name)
            raise StoreUnavailable("the database: connection refused")

    def ping() -> None:
        if away:
            raise StoreUnavailable("the database: connection refused")

    clock, asked, away = ManualClock(), list[str](), True
    schedule, told = Schedule(BOXES, partitions=2, clock=clock), list[object]()

    class Observer(NullObserver):
        def see(self, event: Event) -> None:
            told.append(event)

    outages = Outages(observer=Observer(), error_tracker=lambda *_error, **_context: None, clock=clock)
    watch = BoundsWatch(BOXES, store=Away(), ping=ping, schedule=schedule, outages=outages, clock=clock)
    with pytest.raises(StoreUnavailable):
        watch.turn()
    assert (asked, told) == (["orders"], [])
    away = False
    watch.turn()
    assert asked == ["orders", "orders", "payments"]


def test_boxes_that_answer_slowly_share_no_turn_that_seems_to_hang() -> None:
    class Slow(Store):
        def advance(self, box: Box) -> Collection[int]:
            asked.append(box.name)
            clock.advance(timedelta(seconds=60))
            return ()

    clock, asked = ManualClock(), list[str]()
    schedule = Schedule(BOXES, partitions=2, clock=clock)
    outages = Outages(observer=NullObserver(), error_tracker=lambda *_error, **_context: None, clock=clock)
    watch = BoundsWatch(BOXES, store=Slow(), ping=lambda: None, schedule=schedule, outages=outages, clock=clock)
    for _ in range(3):
        watch.turn()
    assert asked == ["orders", "payments", "orders"]


@pytest.mark.parametrize(
    ("signal", "forgotten"), [(Signal("orders", None, again=True), ["orders"]), (Signal("orders", None), [])]
)
def test_a_signal_of_old_rows_makes_the_worker_begin_at_the_first_row_before_it_looks(
    signal: Signal, forgotten: list[str]
) -> None:
    schedule = Schedule(BOXES, partitions=1, clock=ManualClock())
    wakeups, told = MemoryWakeups(), list[str]()

    def read_from_start(box_name: str) -> None:
        assert due(schedule) == []
        told.append(box_name)

    wakeups.notify([signal])
    listener = Listener(wakeups, schedule, queue_announced=lambda: None, read_from_start=read_from_start)
    listener.turn()
    assert told == forgotten
    assert due(schedule) == [Look(BOXES[0], 0)]


@pytest.mark.parametrize("signal", [Signal("orders", None, again=True), Signal("combined/orders", None, again=True)])
def test_a_signal_of_old_rows_reads_as_it_was_written(signal: Signal) -> None:
    assert Signal.decode(signal.encode()) == [signal]
