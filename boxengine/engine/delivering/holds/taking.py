"""How the threads of a processor come by buckets: one waits at the queue, and others are handed a few past it.

No box may have every thread: a transport that hangs must leave the other boxes one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import assert_never

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.delivering.holds.at_work import AtWork
from boxengine.engine.delivering.holds.attended import Attended
from boxengine.engine.delivering.holds.gathering import PATIENCE, Gathering
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.idle import IdleThreads, Turn
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Hold, JobQueue, Observer
from boxengine.ports.events import Taken

CROWDED_PAUSE = timedelta(seconds=0.05)
"""After which a thread that is kept for the other boxes looks again."""
ALL_PAUSED = timedelta(seconds=0.5)
"""After which a thread looks again where every box is paused."""
FEW = 4
"""Jobs that one thread may be handed. More of them are for several threads to share, out of the queue."""


class Taking:
    """Takes holds for the threads of one processor. Threads come and go through it."""

    def __init__(
        self,
        boxes: Sequence[Box],
        *,
        queue: JobQueue,
        keeper: LeaseKeeper,
        pauses: PauseWatch,
        observer: Observer,
        clock: Clock,
        threads: int,
        wait: timedelta,
        stopping: threading.Event,
        attended: Attended,
    ) -> None:
        """Args:
        wait: how long a thread waits for a job.
        stopping: once it is set, nothing more is taken from the queue.
        """
        self._boxes = boxes
        self._queue = queue
        self._keeper = keeper
        self._pauses = pauses
        self._observer = observer
        self._clock = clock
        self._threads = threads
        self._wait = wait
        self._stopping = stopping
        self._attended = attended
        self._idle = IdleThreads()
        self._handing = threading.Lock()
        self._to_leave: list[Holding] = []
        """Those that could not be left because the coordinator was away."""
        self.at_work = AtWork(clock)
        """What the threads are at."""
        self.gathering = Gathering(clock)
        """What waits for a thread that keeps up."""

    def take(self) -> tuple[Hold | None, timedelta]:
        """What was taken, and the pause before the thread's next turn."""
        started = self._clock.monotonic()
        # Not while nobody is at the queue: what waits there must have its turn.
        gathered = self._take_gathered() if self._idle.queue_is_attended() else None
        got = gathered or self._idle.wait(self._wait.total_seconds())
        match got:
            case Turn.NONE:
                return None, timedelta(0)
            case Turn.AT_QUEUE:
                try:
                    hold, pause = self._take_from_queue()
                finally:
                    self._idle.left_queue()
            case Hold():
                hold, pause = got, timedelta(0)
            case never:
                assert_never(never)
        if hold is not None:
            self._observer.see(Taken(hold.box, jobs=len(hold.jobs), seconds=self._clock.monotonic() - started))
        return hold, pause

    def dispatch(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor in progress; returns how many.

        A few jobs go to a thread of this process that is idle, past the queue: an item that was written a moment ago
        saves two round trips and a thread's waking up. Where one thread suffices for the box, they wait until ``hand_out`` is
        called.
        """
        jobs = self._unattended(box, jobs)
        if not jobs:
            return 0
        if not self._stopping.is_set() and self._idle.can_watch() and self.gathering.add(box, jobs):
            return len(jobs)
        # One at a time, so that each sees what the others took. A second caller does not wait; it queues.
        if len(jobs) > FEW or not self._handing.acquire(blocking=False):
            return self._queue.push(box, jobs)
        try:
            if not self._may_hand_over(box) or not self._idle.reserve():
                return self._queue.push(box, jobs)
            return self._hand_over(box, jobs)
        finally:
            self._handing.release()

    def hand_out(self) -> None:
        """Gives what was gathered of a box to an idle thread, unless one at work takes it next."""
        try:
            # A second caller does not wait: whoever hands out looks again when it has finished.
            while self.gathering.is_due() and self._handing.acquire(blocking=False):
                try:
                    self._hand_out_next()
                finally:
                    self._handing.release()
        finally:
            if self.gathering.has_any():
                # By then the thread that they are left to has taken them, or its transport hangs.
                self._idle.watch(PATIENCE)

    def has_idle_threads(self, box: Box) -> bool:
        """Whether a thread of this process waits for work and may take this box."""
        return self.at_work.by_box().total() < self._threads and bool(self._open_boxes([box]))

    def end(self, hold: Hold) -> None:
        """The thread has finished with what it took."""
        self.gathering.end(hold)
        self.at_work.end(hold)
        if self._stopping.is_set():
            # Other workers should not have to find these rows by themselves.
            with suppress(QueueUnavailable):
                self._take_gathered()

    def leave_later(self, holding: Holding) -> None:
        """The coordinator was away when the holding was to be left: the next thread at the queue leaves it."""
        self._to_leave.append(holding)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _take_from_queue(self) -> tuple[Hold | None, timedelta]:
        """What the thread that waits at the queue has taken, and the pause before its next turn."""
        if self._stopping.is_set():
            return None, timedelta(0)
        running = self._pauses.running(self._boxes)
        if not running:
            return None, ALL_PAUSED
        boxes = self._open_boxes(running)
        # A thread barred from some boxes must not block here and delay unrestricted ones.
        crowded = len(boxes) < len(running)
        wait = timedelta(0) if crowded or self.gathering.is_due() else self._wait
        self._retry_leaving()
        hold = self._queue.take(boxes, wait=wait, ttl=self._keeper.ttl, share=self._threads)
        if hold is not None:
            self._begin(hold)
            return hold, timedelta(0)
        hold = self._take_gathered()
        return hold, CROWDED_PAUSE if crowded and hold is None else timedelta(0)

    def _retry_leaving(self) -> None:
        while self._to_leave:
            holding = self._to_leave.pop()
            try:
                holding.leave_all()
            except QueueUnavailable:
                self.leave_later(holding)
                raise

    def _take_gathered(self) -> Hold | None:
        """A hold of what was gathered of one box. What this worker must not take, it queues for others."""
        while (found := self._gathered()) is not None:
            box, jobs = found
            try:
                if self._stopping.is_set() or self._pauses.paused(box) or not self._open_boxes([box]):
                    self._queue.push(box, jobs)
                    continue
                asked = self._clock.monotonic()
                hold = self._queue.seize(box, jobs, ttl=self._keeper.ttl)
            except BaseException:
                self.gathering.put_back(box, jobs)
                raise
            if hold is not None:
                self._begin(hold, asked=asked)
                return hold
        return None

    def _hand_out_next(self) -> None:
        """Gives what was gathered of one box to an idle thread, or queues it."""
        if (found := self._gathered()) is None:
            return
        box, jobs = found
        if not jobs:
            return
        try:
            # Several threads take their shares out of the queue.
            for_several = len(jobs) > FEW and not self.gathering.suffices(box)
            if for_several or self._stopping.is_set() or not self._may_hand_over(box) or not self._idle.reserve():
                self._queue.push(box, jobs)
            else:
                self._hand_over(box, jobs)
        except BaseException:
            self.gathering.put_back(box, jobs)
            raise

    def _begin(self, hold: Hold, *, asked: float | None = None) -> None:
        self.at_work.begin(hold)
        self.gathering.begin(hold, asked=asked)

    def _gathered(self) -> tuple[Box, Sequence[Job]] | None:
        """What was gathered of one box, without the buckets that a thread of this process has in hand. None: nothing was."""
        found = self.gathering.take()
        return found and (found[0], self._unattended(*found))

    def _unattended(self, box: Box, jobs: Sequence[Job]) -> Sequence[Job]:
        """The jobs whose buckets no thread of this process has in hand.

        The others are read once more by the thread that has them. The coordinator may know nothing of it.
        """
        left = self._attended.want(box.name, {job.bucket for job in jobs}, now=self._clock.monotonic())
        return [job for job in jobs if job.bucket in left]

    def _may_hand_over(self, box: Box) -> bool:
        """Whether that leaves the other boxes a thread, even if the one at the queue takes this box as well."""
        return len(self._boxes) == 1 or self.at_work.by_box()[box.name] + 1 < self._threads - 1

    def _hand_over(self, box: Box, jobs: Sequence[Job]) -> int:
        """Takes the jobs for the thread that is reserved; returns how many it got."""
        asked = self._clock.monotonic()
        try:
            hold = self._without_leases(box, jobs) or self._queue.seize(box, jobs, ttl=self._keeper.ttl)
        except BaseException:
            self._idle.cancel()
            raise
        if hold is None:
            self._idle.cancel()
            return 0
        self._begin(hold, asked=asked)
        self._idle.give(hold)
        return len(hold.jobs)

    def _without_leases(self, box: Box, jobs: Sequence[Job]) -> Hold | None:
        """A hold of buckets that writers have just named, where it will be over in a moment and nobody else is at them."""
        if (
            not self.gathering.suffices(box)
            or self.at_work.by_box()[box.name]
            or not self._keeper.vacancies.take(box, jobs)
        ):
            return None
        until = self._clock.monotonic() + self._keeper.ttl.total_seconds()
        return Hold(box, "", tuple(jobs), until, frozenset(job.bucket for job in jobs))

    def _open_boxes(self, boxes: Sequence[Box]) -> Sequence[Box]:
        """All but a box that has every thread but one: a transport that hangs must leave the other boxes that one."""
        most = self._threads - 1
        if len(self._boxes) == 1 or most == 0:
            return boxes
        busy = self.at_work.by_box()
        return [box for box in boxes if busy[box.name] < most]
