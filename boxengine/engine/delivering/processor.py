"""The processor: takes buckets from the queue and delivers what they hold, until they are empty.

A job says which bucket has work; the rows are read afresh, bucket by bucket, batch after batch. A thread that keeps
its buckets for long hands them back now and then, so that other threads and other workers get their share.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.at_work import AtWork
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.delivery import BatchReport, Delivery
from boxengine.engine.delivering.gone import GoneRows
from boxengine.engine.delivering.keeper import LeaseKeeper
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
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
CAREFUL_ITEMS = 250
"""Items of a bucket that are sent one by one once two holders died of it. A batch may have had more of one bucket in hand: an
item beyond these costs a few deaths more."""
CROWDED_PAUSE = timedelta(seconds=0.05)
"""After which a thread that is kept for the other boxes looks again."""
ALL_PAUSED = timedelta(seconds=0.5)
"""After which a thread looks again where every box is paused."""


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


class Processor:
    """One turn at a time; each of its threads takes turns."""

    def __init__(
        self,
        deliveries: Mapping[str, Delivery],
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
        deliveries: by box name.
        care: for buckets whose last holder died; None: they are worked on like any other.
        gone: asked about jobs of which no row was found due; None: nobody counts those that are gone.
        """
        self._deliveries = deliveries
        self._boxes: Sequence[Box] = [delivery.box for delivery in deliveries.values()]
        self._queue = queue
        self._keeper = keeper
        self._care = care
        self._schedule = schedule
        self._pauses = pauses
        self._gone = gone
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._limits = limits
        self._large = dict.fromkeys(deliveries, False)
        """By box, whether a batch may be large, as the last one of any size showed; kept from one hold to the next."""
        self._door = threading.Lock()
        self.at_work = AtWork(clock)
        """What its threads are at."""
        self._stopping = threading.Event()
        self._unleft: list[tuple[Hold, frozenset[int]]] = []
        """What Redis could not be told: this process lives, though it lost these buckets."""

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
            running = self._pauses.running(self._boxes)
            if not running:
                return None, ALL_PAUSED
            boxes = self._open_boxes(running)
            # A thread barred from some boxes must not block here and delay unrestricted ones.
            crowded = len(boxes) < len(running)
            wait = timedelta(0) if crowded else self._limits.wait
            while self._unleft:
                self._queue.leave(*self._unleft[-1])
                self._unleft.pop()
            hold = self._queue.take(boxes, wait=wait, ttl=self._keeper.ttl, share=self._limits.threads)
            if hold is None:
                return None, CROWDED_PAUSE if crowded else timedelta(0)
            self.at_work.begin(hold)
        finally:
            self._door.release()
        self._observer.taken(hold.box, jobs=len(hold.jobs), seconds=self._clock.monotonic() - started)
        return hold, timedelta(0)

    def _open_boxes(self, boxes: Sequence[Box]) -> Sequence[Box]:
        """All but a box that has every thread but one: a transport that hangs must leave the other boxes that one."""
        most = self._limits.threads - 1
        if len(self._boxes) == 1 or most == 0:
            return boxes
        busy = self.at_work.by_box()
        return [box for box in boxes if busy[box.name] < most]

    def _work(self, hold: Hold) -> None:
        box, started = hold.box, self._clock.monotonic()
        buckets, state = sorted(hold.buckets), "failed"
        try:
            with self._keeper.keeping(hold):
                state = self._drain(hold)
            self._outages.worked(f"box {box.name}", began=started)
        except QueueUnavailable:
            self._unleft.append((hold, frozenset(hold.buckets) - hold.orphaned))
            raise
        except BaseException as error:  # one box's database or code must not stop the others
            if ends_the_worker(error):
                raise
            # The leases are left to run out: that is the pause before anybody tries these buckets again.
            self._outages.failed(f"box {box.name}", error, box=box)
            with suppress(QueueUnavailable):
                self._leave(hold, hold.buckets)
        finally:
            self.at_work.end(hold)
            self._observer.job_done(box, buckets, state=state, seconds=self._clock.monotonic() - started)

    def _drain(self, hold: Hold) -> str:
        """Batch after batch until the hold has no bucket left; returns how it ended."""
        name = hold.box.name
        delivery = self._deliveries[name]
        now = self._clock.monotonic()
        cutoff, turn_over = now + self._limits.cutoff.total_seconds(), now + self._limits.turn.total_seconds()
        after = dict.fromkeys(sorted(hold.buckets), 0)
        claimed, first, width = 0, True, len(after)
        if self._care is not None and hold.orphaned and not self._drain_with_care(self._care, hold, after, cutoff):
            return "timeout"
        while after:
            if self._pauses.paused(hold.box):
                # The jobs wait in the queue, where the box is left alone until somebody resumes it.
                self._hand_back(hold, after, timed_out=False)
                break
            chosen, began = dict(islice(after.items(), width)), self._clock.monotonic()
            report = delivery.run(hold, chosen, until=cutoff, first=first, large=self._large[name])
            if first:
                self._look_for_gone_rows(hold, report)
            first = False
            self._note_pace(name, report, seconds=self._clock.monotonic() - began)
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

    def _note_pace(self, name: str, report: BatchReport, *, seconds: float) -> None:
        if seconds > QUICK or report.weight > LIGHT:
            self._large[name] = False
        elif report.claimed >= WORTH_SHARING:
            self._large[name] = True  # that a few rows were quick tells nothing of many

    def _leave(self, hold: Hold, buckets: Collection[int]) -> None:
        """Lets leases run out; but where the last holder died, the next is to be careful as well."""
        left = set(buckets) - hold.orphaned
        if left:
            self._queue.leave(hold, left)

    def _drain_with_care(self, care: Care, hold: Hold, after: dict[int, int], cutoff: float) -> bool:
        """Sends what the last holders may have had in hand when they died; whether it came to the end of that.

        Bucket by bucket, and one by one where a second holder died of it.

        If not, the leases run out, and whoever takes these buckets next is careful too.
        """
        delivery = self._deliveries[hold.box.name]
        doubtful = dict.fromkeys(sorted(hold.orphaned), CAREFUL_ITEMS)
        while doubtful:
            if self._stopping.is_set() or self._clock.monotonic() >= cutoff or self._pauses.paused(hold.box):
                self._leave(hold, hold.buckets)
                return False
            bucket, left = next(iter(doubtful.items()))
            whole = left == CAREFUL_ITEMS and not care.suspects(hold.box, bucket)
            with nullcontext() if whole else care.one() as caution:
                report = delivery.run(hold, {bucket: after[bucket]}, until=cutoff, caution=caution)
            left = 0 if whole else left - 1
            if not left or bucket in report.exhausted:
                care.clear(hold.box, bucket)
            self._note_receivers(hold.box, report)
            self._go_on(hold, after, report, (bucket,))
            self._wake_for_retries(hold.box, report)
            del doubtful[bucket]
            if left and report.claimed:
                doubtful[bucket] = left  # behind the others
            doubtful = {each: number for each, number in doubtful.items() if each in after}
        return True

    def _look_for_gone_rows(self, hold: Hold, report: BatchReport) -> None:
        idle = report.exhausted - report.last_ids.keys()
        if idle and self._gone is not None:
            self._gone.look(hold, idle)

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
        elif not report.progressed and not self._pauses.paused(hold.box):
            hold.buckets.difference_update(chosen)
        dropped = after.keys() - hold.buckets
        self._leave(hold, dropped - report.exhausted)
        for bucket in dropped:
            del after[bucket]

    def _has_idle_threads(self, box: Box) -> bool:
        """Whether a thread of this process waits for work and may take this box."""
        return self.at_work.by_box().total() < self._limits.threads and bool(self._open_boxes([box]))

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
