"""The processor: takes buckets from the queue and delivers what they hold, until they are empty.

A job says which bucket has work; the rows are read afresh, bucket by bucket, batch after batch. A thread that keeps
its buckets for long hands them back now and then, so that other threads and other workers get their share.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.delivery import BatchReport, Delivery
from boxengine.engine.keeper import LeaseKeeper
from boxengine.engine.outages import Outages
from boxengine.engine.schedule import Schedule
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Hold, JobQueue, Observer

WORTH_SHARING = 100
"""Rows of a batch from which on its buckets are taken to have many more."""
FEWEST = 4
"""Buckets of a batch where each has more rows than are taken of it."""
QUICK = 0.25
"""Seconds; a batch that took no longer is followed by a large one. With eight threads on two cores one of 500 takes 0.1."""
LIGHT = 1_000_000
"""Bytes of a batch's payloads; after a heavier one none is large."""
CROWDED_PAUSE = timedelta(seconds=0.05)
"""After which a thread that is kept for the other boxes looks again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """How long a thread waits and works."""

    wait: timedelta = timedelta(seconds=1)
    """For a job (``brpop_delay``)."""
    cutoff: timedelta = timedelta(seconds=90)
    """After which a thread stops between two items (``cutoff_timeout``)."""
    turn: timedelta = timedelta(seconds=1)
    """After which a thread whose buckets have more hands them back to the queue."""
    lease_ttl: timedelta = timedelta(seconds=4)
    threads: int = 4


class Processor:
    """One turn at a time; each of its threads takes turns."""

    def __init__(
        self,
        deliveries: Mapping[str, Delivery],
        *,
        queue: JobQueue,
        keeper: LeaseKeeper,
        schedule: Schedule,
        outages: Outages,
        observer: Observer,
        clock: Clock,
        limits: ProcessLimits = ProcessLimits(),
    ) -> None:
        """Args:
        deliveries: by box name.
        """
        self._deliveries = deliveries
        self._boxes: Sequence[Box] = [delivery.box for delivery in deliveries.values()]
        self._queue = queue
        self._keeper = keeper
        self._schedule = schedule
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._limits = limits
        self._large = dict.fromkeys(deliveries, False)
        """By box, whether a batch may be large, as the last one of any size showed; kept from one hold to the next."""
        self._door = threading.Lock()
        self._busy: Counter[str] = Counter()
        """Threads at work, by box."""
        self._counting = threading.Lock()
        self._stopping = threading.Event()

    def turn(self) -> timedelta:
        """Waits for buckets with work and delivers them."""
        hold, pause = self._take()
        if hold is not None:
            self._work(hold)
        return pause

    def stop(self) -> None:
        """No more buckets are taken; those in work are handed back after the batch under way."""
        self._stopping.set()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _take(self) -> tuple[Hold | None, timedelta]:
        """One thread waits at the queue for all: the others wait for their turn at the door, which costs nothing.

        Returns what was taken, and the pause before the thread's next turn.
        """
        started = self._clock.monotonic()
        # A lock knows no queue: who waits at it without end may never get in, and would be taken for hanging.
        if not self._door.acquire(timeout=self._limits.wait.total_seconds()):
            return None, timedelta(0)
        try:
            if self._stopping.is_set():
                return None, timedelta(0)
            boxes = self._open_boxes()
            # Who may not take from all boxes does not wait inside: the door is for those that may, a moment later.
            crowded = len(boxes) < len(self._boxes)
            wait = timedelta(0) if crowded else self._limits.wait
            hold = self._queue.take(boxes, wait=wait, ttl=self._limits.lease_ttl, share=self._limits.threads)
            if hold is None:
                return None, CROWDED_PAUSE if crowded else timedelta(0)
            self._count(hold.box, +1)
        finally:
            self._door.release()
        self._observer.taken(hold.box, jobs=len(hold.jobs), seconds=self._clock.monotonic() - started)
        return hold, timedelta(0)

    def _open_boxes(self) -> Sequence[Box]:
        """All but a box that has every thread but one: a transport that hangs must leave the other boxes that one."""
        most = self._limits.threads - 1
        if len(self._boxes) == 1 or most == 0:
            return self._boxes
        return [box for box in self._boxes if self._busy[box.name] < most]

    def _count(self, box: Box, change: int) -> None:
        with self._counting:
            self._busy[box.name] += change

    def _work(self, hold: Hold) -> None:
        box, started = hold.box, self._clock.monotonic()
        buckets, state = sorted(hold.buckets), "failed"
        try:
            with self._keeper.keeping(hold):
                state = self._drain(hold)
            self._outages.worked(f"box {box.name}", began=started)
        except QueueUnavailable:
            raise
        except Exception as error:  # one box's database or code must not stop the others
            # The leases are left to run out: that is the pause before anybody tries these buckets again.
            self._outages.failed(f"box {box.name}", error, box=box)
        finally:
            self._count(box, -1)
            self._observer.job_done(box, buckets, state=state, seconds=self._clock.monotonic() - started)

    def _drain(self, hold: Hold) -> str:
        """Batch after batch until the hold has no bucket left; returns how it ended."""
        name = hold.box.name
        delivery = self._deliveries[name]
        now = self._clock.monotonic()
        cutoff, turn_over = now + self._limits.cutoff.total_seconds(), now + self._limits.turn.total_seconds()
        after = dict.fromkeys(sorted(hold.buckets), 0)
        claimed, first, width = 0, True, len(after)
        while after:
            chosen, began = dict(islice(after.items(), width)), self._clock.monotonic()
            report = delivery.run(hold, chosen, until=cutoff, first=first, large=self._large[name])
            first = False
            if self._clock.monotonic() - began > QUICK or report.weight > LIGHT:
                self._large[name] = False
            elif report.claimed >= WORTH_SHARING:
                self._large[name] = True  # that a few rows were quick tells nothing of many
            claimed += report.claimed
            width = _next_width(len(chosen), report)
            self._note_receivers(hold.box, report)
            self._go_on(hold, after, report, chosen)
            for bucket in chosen:
                if bucket in after:
                    after[bucket] = after.pop(bucket)  # to the end: the others come first
            self._wake_for_retries(hold.box, report)
            if after and (self._stopping.is_set() or self._clock.monotonic() >= min(cutoff, turn_over)):
                return self._hand_back(hold, after, timed_out=self._clock.monotonic() >= cutoff)
            if len(after) > 1 and report.claimed >= WORTH_SHARING and self._has_idle_threads(hold.box):
                self._share(hold, after)
        return "processed" if claimed else "skipped"

    def _note_receivers(self, box: Box, report: BatchReport) -> None:
        for name in report.reached:
            self._outages.worked(_transport(box, name))
        for name, error in report.unreachable.items():
            self._outages.failed(_transport(box, name), error, needed=True)

    def _go_on(self, hold: Hold, after: dict[int, int], report: BatchReport, chosen: Collection[int]) -> None:
        """Leaves ``after`` with the buckets that are still held and have more, and where to read on."""
        after.update(report.last_ids)
        # Somebody else holds these in the database: their leases run out by themselves, as a pause.
        hold.buckets -= report.refused
        wanted = self._queue.release(hold, report.exhausted) if report.exhausted else frozenset()
        hold.buckets -= report.exhausted - wanted
        for bucket in wanted:
            after[bucket] = 0  # what was passed over deserves another look
        if report.unreachable and not report.progressed:
            hold.buckets.clear()  # the others' items would go the same way
        elif not report.progressed:
            hold.buckets.difference_update(chosen)
        for bucket in after.keys() - hold.buckets:
            del after[bucket]

    def _has_idle_threads(self, box: Box) -> bool:
        """Whether a thread of this process waits for work and may take this box."""
        return self._busy.total() < self._limits.threads and box in self._open_boxes()

    def _share(self, hold: Hold, after: dict[int, int]) -> None:
        """Hands half of the buckets back, for threads that have none."""
        given = dict(list(after.items())[len(after) // 2 :])
        self._queue.hand_back(replace(hold, buckets=set(given)), self._jobs(given))
        hold.buckets -= given.keys()
        for bucket in given:
            del after[bucket]

    def _hand_back(self, hold: Hold, after: Mapping[int, int], *, timed_out: bool) -> str:
        self._queue.hand_back(hold, self._jobs(after))
        return "timeout" if timed_out else "processed"

    def _jobs(self, after: Mapping[int, int]) -> list[Job]:
        now = int(self._clock.now().timestamp())
        return [Job(bucket, now, (max(1, last_id),)) for bucket, last_id in after.items()]

    def _wake_for_retries(self, box: Box, report: BatchReport) -> None:
        for bucket, pause in report.next_due.items():
            self._schedule.wake(box.name, [bucket], within=pause.total_seconds(), prompt=False)


def _next_width(width: int, report: BatchReport) -> int:
    """How many buckets the next batch takes.

    Each look at a bucket walks over what was delivered of it since the last vacuum, so where there is much to take, more
    is taken at a look: the width is halved while all buckets have more than their share of a batch.
    """
    if report.claimed >= WORTH_SHARING and not report.exhausted:
        return max(FEWEST, width // 2)
    return 2 * width


def _transport(box: Box, name: str) -> str:
    return f"transport {name} of {box.name}"
