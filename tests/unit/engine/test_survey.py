"""One look for many boxes: an idle box costs nothing of its own, and a row of which nobody told is found within a second."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.store import MemoryStore
from boxengine.adapters.memory.wakeups import MemoryWakeups
from boxengine.domain.box import Box, Storage
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.engine.polling.checks import Checks
from boxengine.engine.polling.listener import Listener
from boxengine.engine.polling.looks import PollLimits
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.poller import Poller
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.survey import Survey
from boxengine.engine.polling.tactics import TACTICS
from boxengine.engine.polling.throttlers import Pace
from boxengine.engine.running.outages import Outages
from boxengine.errors import SchemaMismatch, StoreUnavailable
from boxengine.ports import Outlook, Signal
from tests.unit.engine.bench import make_box

STEP = 0.05


class Counted(MemoryStore):
    """Counts the looks at single boxes."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.looks: Counter[str] = Counter()
        self.surveyed = set[str]()
        self.broken = False
        self.away = False

    def outlook(self, box: Box, buckets: Any) -> Outlook:
        if self.away:
            raise StoreUnavailable("connection refused")
        self.looks[box.name] += 1
        return super().outlook(box, buckets)

    def ping(self) -> None:
        if self.away:
            raise StoreUnavailable("connection refused")

    def pending(self, boxes: Any) -> frozenset[str]:
        self.surveyed.update(box.name for box in boxes)
        if self.away:
            raise StoreUnavailable("connection refused")
        if self.broken:
            raise SchemaMismatch("box_7: there is no table")
        return super().pending(boxes)


class Town:
    """Many boxes and their poller, with or without wake-ups."""

    def __init__(self, *, reliable: bool = True, logs: int = 0) -> None:
        """Args:
        logs: how many of the boxes have one, the first ones.
        """
        self.clock = ManualClock()
        self.boxes = [
            make_box(
                name=f"box_{number}",
                table=f"box_{number}",
                storage=Storage.LOG if number < logs else Storage.TABLE,
            )
            for number in range(40)
        ]
        self.store = Counted(self.clock)
        self.queue = MemoryJobQueue(clock=self.clock)
        schedule = Schedule(self.boxes, partitions=2, clock=self.clock)
        self.pauses = MemoryPauses()
        watch = PauseWatch(self.pauses, self.boxes, clock=self.clock)
        outages = Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=self.clock)
        self.survey = Survey(self.boxes, store=self.store, schedule=schedule, pauses=watch, outages=outages)
        self.wakeups = wakeups = MemoryWakeups()
        wakeups.reliable = reliable
        tactic = TACTICS["default"](Pace())
        checks = Checks(
            schedule,
            store=self.store,
            queue=self.queue,
            pauses=watch,
            wakeups=wakeups,
            tactic=tactic,
            clock=self.clock,
            quiet=self.survey.quiet,
        )
        self.poller = Poller(
            schedule,
            checks=checks,
            store=self.store,
            queue=self.queue,
            leases=MemoryLeases(clock=self.clock),
            pauses=watch,
            tactic=tactic,
            middlewares=(),
            outages=outages,
            observer=NullObserver(),
            tracer=NullTracer(),
            clock=self.clock,
            queue_jobs=self.queue.push,
            token="poller",
            limits=PollLimits(take_wait=0.0),
        )
        self.listener = Listener(
            wakeups, schedule, queue_announced=self.poller.queue_announced, quiet=self.survey.quiet
        )
        self._survey_at = 0.0

    def go_on(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.clock.advance(timedelta(seconds=STEP))
            if self.clock.monotonic() >= self._survey_at:
                self._survey_at = self.clock.monotonic() + self.survey.turn().total_seconds()
            for _ in range(2 * len(self.boxes)):
                self.poller.turn()

    def queued(self, box: Box) -> int:
        return self.queue.state(box).length


@pytest.mark.parametrize("reliable", [True, False])
def test_idle_boxes_are_not_looked_at_one_by_one(reliable: bool) -> None:
    town = Town(reliable=reliable)
    town.go_on(10)
    before = town.store.looks.total()
    town.go_on(60)
    assert town.store.looks.total() == before


def test_a_row_of_which_nobody_told_is_queued_within_a_second() -> None:
    town = Town()
    town.go_on(30)
    town.store.insert(town.boxes[7], event_key=1)
    town.go_on(1)
    assert town.queued(town.boxes[7]) == 1
    assert sum(map(town.queued, town.boxes)) == 1


def test_a_box_with_rows_that_wait_is_checked_at_its_own_pace_and_they_are_queued_in_time() -> None:
    town = Town()
    town.go_on(10)
    due = town.clock.now() + timedelta(seconds=20)
    town.store.insert(town.boxes[7], event_key=1, available_at=due)
    before = town.store.looks.total()
    town.go_on(19)
    assert town.store.looks.total() - before <= 15
    assert town.queued(town.boxes[7]) == 0
    town.go_on(1 + 2 * STEP)
    assert town.queued(town.boxes[7]) == 1


def test_a_paused_box_is_left_out_and_looked_at_once_it_is_resumed() -> None:
    town = Town()
    town.pauses.set(town.boxes[7], polling_enabled=False)
    town.go_on(10)
    town.store.insert(town.boxes[7], event_key=1)
    before = town.store.looks["box_7"]
    town.go_on(10)
    assert (town.store.looks["box_7"], town.queued(town.boxes[7])) == (before, 0)
    town.pauses.set(town.boxes[7], polling_enabled=True)
    town.go_on(3)
    assert town.queued(town.boxes[7]) == 1


def test_boxes_with_a_log_are_checked_at_their_own_pace() -> None:
    town = Town(logs=20)
    town.go_on(30)
    assert town.store.surveyed == {box.name for box in town.boxes[20:]}
    town.store.insert(town.boxes[7], event_key=1)
    town.go_on(6)
    assert town.queued(town.boxes[7]) == 1


def test_while_the_look_at_all_fails_each_box_is_checked_by_itself() -> None:
    town = Town()
    town.go_on(10)
    town.store.broken = True
    town.go_on(1)
    town.store.insert(town.boxes[3], event_key=1)
    town.go_on(6)
    assert town.queued(town.boxes[3]) == 1


def test_rows_that_waited_for_a_worker_are_queued_before_all_other_boxes_are_checked() -> None:
    town = Town()
    town.store.insert(town.boxes[33], event_key=1)
    town.survey.turn()
    for _ in range(2):
        town.poller.turn()
    assert (town.queued(town.boxes[33]), town.store.looks.total()) == (1, 1)


def test_after_an_outage_only_boxes_with_rows_are_checked() -> None:
    """Each check takes a while, the more so of a server that has just come back."""
    town = Town()
    town.go_on(10)
    town.store.away = True
    town.go_on(2)
    town.store.insert(town.boxes[33], event_key=1)
    town.store.away = False
    before = town.store.looks.copy()
    town.go_on(5)
    assert town.queued(town.boxes[33]) == 1
    assert (town.store.looks - before).keys() == {"box_33"}


def test_boxes_that_the_survey_covers_are_not_all_checked_where_listening_begins_anew() -> None:
    town = Town(reliable=True)
    town.go_on(10)
    before = town.store.looks.total()
    town.wakeups.beginnings += 1
    town.wakeups.notify([Signal("another box", None)])
    town.listener.turn()
    town.go_on(2 * STEP)
    assert town.store.looks.total() == before
