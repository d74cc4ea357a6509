"""The processor: takes buckets from the queue and has them drained.

A job says which bucket has work; the rows are read afresh, bucket by bucket, batch after batch. A thread that keeps its
buckets for long hands them back now and then, so that other threads and other workers get their share.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.at_work import AtWork
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.careful import drained_with_care
from boxengine.engine.delivering.drain import Drain
from boxengine.engine.delivering.follow_up import FollowUp
from boxengine.engine.delivering.gone import GoneRows
from boxengine.engine.delivering.holding import Holding
from boxengine.engine.delivering.idle import IdleThreads, Turn
from boxengine.engine.delivering.keeper import LeaseKeeper
from boxengine.engine.delivering.sizing import ROWS, Sizing, worth_sharing
from boxengine.engine.delivering.work import Work
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Hold, JobQueue, Observer
from boxengine.ports.events import Ending, HoldEnded, Taken

CROWDED_PAUSE = timedelta(seconds=0.05)
"""After which a thread that is kept for the other boxes looks again."""
ALL_PAUSED = timedelta(seconds=0.5)
"""After which a thread looks again where every box is paused."""


FEW = 4
"""Jobs that one thread may be handed. More of them are for several threads to share, out of the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """How long a thread waits and works."""

    wait: timedelta = timedelta(seconds=1)
    """For a job (``brpop_delay``)."""
    cutoff: timedelta = timedelta(seconds=90)
    """After which a thread stops between two items (``cutoff_timeout``)."""
    turn: timedelta = timedelta(seconds=1)
    """After which a thread whose buckets have more hands them back to the queue."""
    threads: int = 4
    rows: int = ROWS
    """Of a batch that is not large."""


class Processor:
    """One turn at a time; each of its threads takes turns."""

    def __init__(
        self,
        works: Mapping[str, Work],
        *,
        queue: JobQueue,
        keeper: LeaseKeeper,
        care: Care | None = None,
        schedule: Schedule,
        gone: GoneRows | None = None,
        pauses: PauseWatch,
        outages: Outages,
        observer: Observer,
        clock: Clock,
        limits: ProcessLimits = ProcessLimits(),
    ) -> None:
        """Args:
        works: what to do with the buckets of each box, by box name.
        care: for buckets whose last holder died; None: they are worked on like any other.
        gone: asked about jobs of which no row was found due; None: nobody counts those that are gone.
        """
        self._works = works
        self._boxes: Sequence[Box] = [work.box for work in works.values()]
        self._queue = queue
        self._keeper = keeper
        self._care = care
        self._follow_up = FollowUp(schedule=schedule, outages=outages, gone=gone)
        self._pauses = pauses
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._limits = limits
        self._sizings = {name: Sizing(work.box, rows=limits.rows) for name, work in works.items()}
        self._idle = IdleThreads()
        self._handing = threading.Lock()
        self.at_work = AtWork(clock)
        """What its threads are at."""
        self._stopping = threading.Event()
        self._unleft: list[Holding] = []
        """Holdings that could not be left because the coordinator was away."""

    def turn(self) -> timedelta:
        """Waits for buckets with work and drains them; returns the pause before the thread's next turn."""
        hold, pause = self._take()
        if hold is not None:
            self._work(hold)
        return pause

    def dispatch(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor in progress; returns how many.

        A few jobs go to a thread of this process that is idle, past the queue: an item that was written a moment ago
        saves two round trips and a thread's waking up. Other workers see the same leases either way.
        """
        # One at a time, so that each sees what the others took. A second caller does not wait; it queues.
        if len(jobs) > FEW or not self._handing.acquire(blocking=False):
            return self._queue.push(box, jobs)
        try:
            if not self._may_hand_over(box) or not self._idle.reserve():
                return self._queue.push(box, jobs)
            return self._hand_over(box, jobs)
        finally:
            self._handing.release()

    def _may_hand_over(self, box: Box) -> bool:
        """Whether that leaves the other boxes a thread, even if the one at the queue takes this box as well."""
        return len(self._boxes) == 1 or self.at_work.by_box()[box.name] + 1 < self._limits.threads - 1

    def _hand_over(self, box: Box, jobs: Sequence[Job]) -> int:
        """Takes the jobs for the thread that is reserved."""
        try:
            hold = self._queue.seize(box, jobs, ttl=self._keeper.ttl)
        except BaseException:
            self._idle.cancel()
            raise
        if hold is None:
            self._idle.cancel()
            return 0
        self.at_work.begin(hold)
        self._idle.give(hold)
        return len(hold.jobs)

    def stop(self) -> None:
        """No more buckets are taken; those in work are handed back after the batch under way."""
        self._stopping.set()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _work(self, hold: Hold) -> None:
        box, started = hold.box, self._clock.monotonic()
        drain, ending = self._drain_of(hold), Ending.FAILED
        try:
            with self._keeper.keeping(drain.holding):
                ending = self._drained(drain)
            self._outages.worked(f"box {box.name}", began=started)
        except QueueUnavailable:
            self._unleft.append(drain.holding)
            raise
        except BaseException as error:  # one box's database or code must not stop the others
            if ends_the_worker(error):
                raise
            # The leases are left to run out: that is the pause before anybody tries these buckets again.
            self._outages.failed(f"box {box.name}", error, box=box)
            with suppress(QueueUnavailable):
                drain.holding.leave_all()
        finally:
            self.at_work.end(hold)
            seconds = self._clock.monotonic() - started
            self._observer.see(HoldEnded(box, sorted(hold.buckets), ending, seconds=seconds))

    def _drained(self, drain: Drain) -> Ending:
        """Batch after batch until no bucket is left or others should have a turn; returns how it ended."""
        began = self._clock.monotonic()
        cutoff = began + self._limits.cutoff.total_seconds()
        turn_over = min(cutoff, began + self._limits.turn.total_seconds())
        if not self._drained_with_care(drain, cutoff):
            return Ending.TIMEOUT
        while drain.buckets:
            if self._pauses.paused(drain.box):
                # The jobs wait in the queue, where the box is left alone until somebody resumes it.
                drain.hand_back()
                break
            report = drain.step(until=cutoff)
            now = self._clock.monotonic()
            if drain.buckets and (self._stopping.is_set() or now >= turn_over):
                drain.hand_back()
                return Ending.TIMEOUT if now >= cutoff else Ending.PROCESSED
            if len(drain.buckets) > 1 and worth_sharing(report) and self._has_idle_threads(drain.box):
                drain.share()
        return Ending.PROCESSED if drain.claimed else Ending.SKIPPED

    def _drained_with_care(self, drain: Drain, cutoff: float) -> bool:
        """Whether nothing is left of what the buckets' last holders had in hand when they died."""
        if self._care is None or not drain.orphaned:
            return True

        def must_stop() -> bool:
            late = self._stopping.is_set() or self._clock.monotonic() >= cutoff
            return late or self._pauses.paused(drain.box)

        return drained_with_care(drain, self._care, until=cutoff, must_stop=must_stop)

    def _drain_of(self, hold: Hold) -> Drain:
        return Drain(
            Holding(hold, self._queue),
            self._works[hold.box.name],
            sizing=self._sizings[hold.box.name],
            follow_up=self._follow_up,
            pauses=self._pauses,
            clock=self._clock,
        )

    # ── taking ───────────────────────────────────────────────────────────────────────────────────────

    def _take(self) -> tuple[Hold | None, timedelta]:
        """What was taken, and the pause before the thread's next turn."""
        started = self._clock.monotonic()
        got = self._idle.wait(self._limits.wait.total_seconds())
        if got is Turn.NONE:
            return None, timedelta(0)
        if isinstance(got, Hold):
            hold: Hold | None = got
            pause = timedelta(0)
        else:
            try:
                hold, pause = self._take_from_queue()
            finally:
                self._idle.left_queue()
        if hold is not None:
            self._observer.see(Taken(hold.box, jobs=len(hold.jobs), seconds=self._clock.monotonic() - started))
        return hold, pause

    def _take_from_queue(self) -> tuple[Hold | None, timedelta]:
        """The same, by the thread that waits at the queue."""
        if self._stopping.is_set():
            return None, timedelta(0)
        running = self._pauses.running(self._boxes)
        if not running:
            return None, ALL_PAUSED
        boxes = self._open_boxes(running)
        # A thread barred from some boxes must not block here and delay unrestricted ones.
        crowded = len(boxes) < len(running)
        wait = timedelta(0) if crowded else self._limits.wait
        while self._unleft:
            self._unleft[-1].leave_all()
            self._unleft.pop()
        hold = self._queue.take(boxes, wait=wait, ttl=self._keeper.ttl, share=self._limits.threads)
        if hold is None:
            return None, CROWDED_PAUSE if crowded else timedelta(0)
        self.at_work.begin(hold)
        return hold, timedelta(0)

    def _open_boxes(self, boxes: Sequence[Box]) -> Sequence[Box]:
        """All but a box that has every thread but one: a transport that hangs must leave the other boxes that one."""
        most = self._limits.threads - 1
        if len(self._boxes) == 1 or most == 0:
            return boxes
        busy = self.at_work.by_box()
        return [box for box in boxes if busy[box.name] < most]

    def _has_idle_threads(self, box: Box) -> bool:
        """Whether a thread of this process waits for work and may take this box."""
        return self.at_work.by_box().total() < self._limits.threads and bool(self._open_boxes([box]))
