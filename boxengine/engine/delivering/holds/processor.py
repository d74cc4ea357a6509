"""The processor: takes buckets from the queue and has them drained.

A job says which bucket has work; the rows are read afresh, bucket by bucket, batch after batch. A thread that keeps its
buckets for long hands them back now and then, so that other threads and other workers get their share.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.holds.attended import Attended
from boxengine.engine.delivering.holds.careful import drained_with_care
from boxengine.engine.delivering.holds.drain import Drain
from boxengine.engine.delivering.holds.follow_up import FollowUp
from boxengine.engine.delivering.holds.gone import GoneRows
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.sizing import ROWS, WORTH_SHARING, Sizing, is_backlog, worth_sharing
from boxengine.engine.delivering.holds.taking import Taking
from boxengine.engine.delivering.work import Work
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.proof import Proof
from boxengine.engine.timing import TIMING
from boxengine.errors import NotPermitted, QueueUnavailable, StoreTooSlow, StoreUnavailable, TableMissing
from boxengine.ports import Clock, Hold, JobQueue, Observer
from boxengine.ports.events import Ending, HoldEnded

_ANSWERS = (NotPermitted, StoreTooSlow, TableMissing)
"""Of a database that is there and will give the same answer in a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """How long a thread waits and works."""

    wait: timedelta = timedelta(seconds=1)
    """For a job (``brpop_delay``)."""
    cutoff: timedelta = timedelta(seconds=90)
    """After which a thread stops between two items, and batches become smaller (``cutoff_timeout``)."""
    turn: timedelta = timedelta(seconds=1)
    """After which a thread whose buckets have more hands them back to the queue."""
    threads: int = 4
    rows: int = ROWS
    """Of a batch that is not large."""
    share_from: int = WORTH_SHARING
    """Rows of a batch after which its thread gives half of its buckets to idle ones: they seem to have many more."""


class Processor:
    """Takes buckets from the queue and drains them. Each of its threads takes one turn after the other."""

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
        gone: asked about jobs none of whose rows was due; None: rows that are gone are not counted.
        """
        self._works = works
        self._queue = queue
        self._keeper = keeper
        self._care = care
        self._follow_up = FollowUp(schedule=schedule, outages=outages, clock=clock, gone=gone)
        self._pauses = pauses
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._limits = limits
        longest = limits.cutoff.total_seconds()
        self._sizings = {name: Sizing(work.box, rows=limits.rows, longest=longest) for name, work in works.items()}
        self._stopping = threading.Event()
        self._proof = Proof(queue)
        self._attended = Attended()
        self._taking = Taking(
            [work.box for work in works.values()],
            queue=queue,
            keeper=keeper,
            pauses=pauses,
            observer=observer,
            clock=clock,
            threads=limits.threads,
            wait=limits.wait,
            stopping=self._stopping,
            attended=self._attended,
        )
        self.at_work = self._taking.at_work
        """What its threads are at."""

    def turn(self) -> timedelta:
        """Waits for buckets with work and drains them; returns the pause before the thread's next turn."""
        with self._proof:
            hold, pause = self._taking.take()
            if hold is not None:
                self._work(hold)
        self._follow_up.forget_locks()
        return pause

    def dispatch(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor in progress, or hands it to an idle thread; returns how many.

        What one thread suffices for is gathered until ``hand_out`` is called.
        """
        return self._taking.dispatch(box, jobs)

    def hand_out(self) -> None:
        """Gives what ``dispatch`` has gathered to an idle thread, unless one at work takes it next."""
        self._taking.hand_out()

    def want(self, box_name: str, buckets: Collection[int]) -> Collection[int]:
        """Has the threads that hold these buckets read them once more; returns the buckets that none of them holds."""
        return self._attended.want(box_name, buckets, now=self._clock.monotonic())

    def stop(self) -> None:
        """No more buckets are taken; those in work are handed back after the batch under way."""
        self._stopping.set()
        self._queue.interrupt()

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _work(self, hold: Hold) -> None:
        box, started = hold.box, self._clock.monotonic()
        drain, ending = self._drain_of(hold), Ending.FAILED
        try:
            with self._keeper.keeping(drain.holding), self._attended.attending(drain.holding):
                ending = self._drained(hold, drain)
            if not drain.at_rest:  # or the log would say that the box works while nothing of it can be recorded
                self._outages.worked(f"box {box.name}", began=started)
        except QueueUnavailable:
            if drain.holding.hold.leased:
                self._taking.leave_later(drain.holding)
            raise
        except BaseException as error:  # one box's database or code must not stop the others
            if ends_the_worker(error):
                raise
            pause = self._outages.failed(f"box {box.name}", error, box=box)
            # The leases are left to run out: that is the pause before anybody tries these buckets again. It begins short where
            # the server is away, or another transaction was in the way: either may be over in a moment.
            passing = isinstance(error, StoreUnavailable) and not isinstance(error, _ANSWERS)
            with suppress(QueueUnavailable):
                drain.holding.leave_all(within=timedelta(seconds=max(TIMING.failed, pause)) if passing else None)
        finally:
            self._keeper.vacancies.free(box, drain.holding.done_without_leases)
            self._taking.end(hold)
            seconds = self._clock.monotonic() - started
            self._observer.see(HoldEnded(box, sorted(hold.buckets), ending, seconds=seconds))

    def _drained(self, hold: Hold, drain: Drain) -> Ending:
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
            self._taking.gathering.batch_begins(hold)
            report = drain.step(until=cutoff)
            self._taking.gathering.batch_ended(hold, report)
            now = self._clock.monotonic()
            if drain.buckets and (self._stopping.is_set() or now >= turn_over):
                if self._stopping.is_set():
                    # Other workers should not have to find these rows by themselves, however long the queue is.
                    drain.hand_back()
                else:
                    drain.end_turn()
                return Ending.TIMEOUT if now >= cutoff else Ending.PROCESSED
            if is_backlog(report):
                # What was left to this thread is for all of them.
                self._taking.hand_out()
            elif drain.buckets and self._taking.gathering.waits(drain.box):
                # One hold of all of them takes less than one of these first and then one of those.
                self._taking.gathering.put_back(drain.box, drain.pass_on())
            many = worth_sharing(report, self._limits.share_from)
            if many and len(drain.buckets) > 1 and self._taking.has_idle_threads(drain.box):
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
            Holding(hold, self._queue, ttl=self._keeper.ttl),
            self._works[hold.box.name],
            sizing=self._sizings[hold.box.name],
            follow_up=self._follow_up,
            pauses=self._pauses,
            clock=self._clock,
        )
