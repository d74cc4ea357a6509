"""Leases that are long enough at the coordinator's pace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import cast

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.lease_length import SAMPLES, LeaseLength
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.ports import Hold
from boxengine.ports.events import CoordinatorQuick, CoordinatorSlow, Event
from tests.unit.engine.bench import make_box

SHORTEST = timedelta(seconds=4)
ROUND_TRIPS = 5


class Told:
    """What was told of the coordinator's pace."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, float, float]] = []

    def see(self, event: Event) -> None:
        match event:
            case CoordinatorSlow():
                self.lines.append(("slow", event.seconds, event.lease.total_seconds()))
            case CoordinatorQuick():
                self.lines.append(("quick", event.seconds, event.lease.total_seconds()))
            case _:
                pass


def length_after(*seconds: float, told: Told | None = None) -> LeaseLength:
    length = LeaseLength(SHORTEST, round_trips=ROUND_TRIPS, observer=told or Told())
    for each in seconds:
        length.measured(each)
    return length


@pytest.mark.parametrize(
    ("seconds", "ttl"),
    [
        ((), 4.0),
        ((0.001, 0.002), 4.0),
        ((TIMING.unnoticed,) * 3, 4.0),
        ((2.0,), 14.0),
        ((2.0, 2.0, 2.0), 14.0),
        ((2.0, 2.0, 2.0, 0.001, 0.001), 4.0),
        ((50.0,) * 3, TIMING.longest_lease),
    ],
)
def test_a_lease_has_room_for_round_trips_at_the_pace_of_the_last_ones(seconds: Sequence[float], ttl: float) -> None:
    assert length_after(*seconds).ttl == timedelta(seconds=ttl)


def test_one_round_trip_that_took_long_changes_nothing() -> None:
    told = Told()
    assert length_after(0.001, 0.001, 5.0, 0.001, 0.001, told=told).ttl == SHORTEST
    assert told.lines == []


def test_the_first_round_trip_may_have_opened_a_connection_and_is_not_told_of() -> None:
    told = Told()
    length_after(8.0, 2.0, 2.0, told=told)
    assert told.lines == [("slow", 2.0, 14.0)]


def test_a_slow_coordinator_is_told_of_once_and_so_is_its_end() -> None:
    told = Told()
    around = (TIMING.slow + 0.1, TIMING.slow - 0.1) * SAMPLES
    length_after(*around, *around, 0.01, 0.01, 0.01, told=told)
    assert [what for what, _, _ in told.lines] == ["slow", "quick"]
    assert told.lines[-1] == ("quick", 0.01, 4.0)


class SlowQueue(MemoryJobQueue):
    """Answers after ``delay``."""

    delay = timedelta(seconds=2)

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        hold = super().take(boxes, wait=wait, ttl=ttl, share=share)
        cast("ManualClock", self._clock).advance(self.delay)
        return hold

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        lost = super().extend(hold, ttl=ttl)
        cast("ManualClock", self._clock).advance(self.delay)
        return lost


class SlowPauses(MemoryPauses):
    """The same."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.questions = 0

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        self.questions += 1
        self._clock.advance(SlowQueue.delay)
        return super().polling_enabled(boxes)


class Recall:
    """A work that asks the coordinator once more before its first item, and notes whether the hold has time left."""

    def __init__(self, box: Box, clock: ManualClock) -> None:
        self.box = box
        self.in_time: list[bool] = []
        self._clock = clock

    def run(self, errand: Errand) -> Report:
        self._clock.advance(SlowQueue.delay)
        self.in_time.append(self._clock.monotonic() < errand.term.valid_until)
        return Report(claimed=1, exhausted=frozenset(errand.positions))


def test_what_a_slow_coordinator_gave_is_delivered_and_not_dropped() -> None:
    clock, box = ManualClock(), make_box(bucket_size=1)
    queue, work = SlowQueue(clock=clock), Recall(box, clock)
    length = length_after()
    processor = Processor(
        {box.name: work},
        queue=queue,
        keeper=LeaseKeeper(queue, clock=clock, length=length, longest=timedelta(minutes=3)),
        schedule=Schedule([box], partitions=1, clock=clock),
        pauses=PauseWatch(SlowPauses(clock), [box], clock=clock, measured=length.measured),
        outages=Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=clock),
        observer=NullObserver(),
        clock=clock,
        limits=ProcessLimits(threads=1, wait=timedelta(0)),
    )
    queue.push(box, [Job(0, 0, (1,))])
    processor.turn()
    assert work.in_time == [True]


def test_renewals_show_the_pace_and_are_as_long_as_it_asks_for() -> None:
    clock, box = ManualClock(), make_box(bucket_size=1)
    queue, length = SlowQueue(clock=clock), length_after()
    keeper = LeaseKeeper(queue, clock=clock, length=length, longest=timedelta(minutes=3))
    queue.push(box, [Job(0, 0, (1,))])
    hold = queue.take([box], wait=timedelta(0), ttl=SHORTEST, share=1)
    assert hold is not None
    holding = Holding(hold, queue)
    with keeper.keeping(holding):
        keeper.turn()
        keeper.turn()
        assert holding.valid_until - clock.monotonic() == pytest.approx(14 - 2)


def test_an_answer_that_took_as_long_as_it_holds_is_not_asked_for_again_at_once() -> None:
    clock, box = ManualClock(), make_box()
    pauses = SlowPauses(clock)
    watch = PauseWatch(pauses, [box], clock=clock)
    assert not any(watch.paused(box) for _ in range(10))
    assert pauses.questions == 1
