"""The poller: finds rows that are due and queues one job for each bucket that has none queued or in progress.

A turn takes one task from the schedule. A *check* asks the store where a box has due rows, and asks for looks at those
partitions. A *look* reads the due rows of one partition. An *announcement* queues buckets that the rows' writers have
named: it needs no query, which saves a fresh item a round trip.

Looks and announcements are polls: middlewares run around them, the tactic may postpone them, and the partition's lease
keeps other workers from doing the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple, assert_never

from boxengine.domain.job import ANY_ID, Job
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.calls.middleware import NotCalledOn, compose
from boxengine.engine.delivering.calls.pipeline import Middleware
from boxengine.engine.polling.checks import Checks
from boxengine.engine.polling.looks import LIMITS, Looks, Polled, PollLimits, QueueJobs
from boxengine.engine.polling.partition_leases import PartitionLeases
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.queue_lengths import QueueLengths
from boxengine.engine.polling.schedule import NEVER, Schedule
from boxengine.engine.polling.tactics import Tactic
from boxengine.engine.polling.tasks import Announce, Check, Key, Look, Task
from boxengine.engine.polling.throttlers import Answer, Decision, Moment
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.proof import Proof
from boxengine.engine.timing import TIMING, Timing
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, JobQueue, Leases, Observer, Store, Tracer, events

Poll = Look | Announce


class Again(NamedTuple):
    """When a task is due again, in seconds from now."""

    next_in: float
    """Due then without being asked for."""
    not_before: float
    """Not due earlier, even if asked for."""


class Poller:
    """Does one task per turn; any number of threads may take turns."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        checks: Checks,
        store: Store,
        queue: JobQueue,
        leases: Leases,
        pauses: PauseWatch,
        tactic: Tactic,
        middlewares: Sequence[Middleware],
        outages: Outages,
        observer: Observer,
        tracer: Tracer,
        clock: Clock,
        queue_jobs: QueueJobs,
        hand_out: Callable[[], object] = lambda: None,
        token: str,
        limits: PollLimits = LIMITS,
        timing: Timing = TIMING,
    ) -> None:
        """Args:
        hand_out: called when all that is due has been queued, as ``Processor.hand_out`` is.
        token: identifies this worker as the holder of partitions' leases.
        """
        self._schedule = schedule
        self._checks = checks
        self._queue_jobs = queue_jobs
        self._hand_out = hand_out
        self._looks = Looks(schedule, store=store, queue_jobs=self._queue_jobs, clock=clock, limits=limits)
        self._lengths = QueueLengths(queue, observer=observer, clock=clock, timing=timing)
        self._leases = PartitionLeases(leases, token, partitions=schedule.partitions, ttl=limits.lease_ttl, clock=clock)
        self._pauses = pauses
        self._tactic = tactic
        self._poll_through = compose(middlewares, self._poll)
        self._outages = outages
        self._observer = observer
        self._tracer = tracer
        self._clock = clock
        self._limits = limits
        self._timing = timing
        self._gaps: dict[Key, float] = {}
        """Polls that found only buckets already queued or in progress, with the gap that followed (seconds)."""
        self._proof = Proof(queue)

    def turn(self) -> timedelta:
        """Does one task that is due, an announcement with all others; returns after a while if none is."""
        task = self._schedule.take(wait=self._limits.take_wait)
        with self._proof:
            if task is not None:
                with self._handed_out():
                    self._do(task)
                    if isinstance(task, Announce):
                        self._do_announcements()
        return timedelta(0)

    def queue_announced(self) -> None:
        """Queues the announced buckets and returns at once.

        If the coordinator does not answer, they are left to a later turn, which reports the outage.
        """
        try:
            with suppress(QueueUnavailable), self._handed_out():
                self._do_announcements()
        finally:
            self._schedule.rouse()

    def release(self) -> None:
        """Gives the partitions' leases back, when the worker stops."""
        self._leases.release_all()

    @contextmanager
    def _handed_out(self) -> Iterator[None]:
        """Whatever the block has queued is handed out at its end, even if it failed half way."""
        try:
            yield
        finally:
            self._hand_out()

    def _do_announcements(self) -> None:
        while (task := self._schedule.take_announcement()) is not None:
            self._do(task)

    def _do(self, task: Task) -> None:
        what, again = f"polling {task.box_name}", Again(self._tactic.unprompted, self._timing.shortest_gap)
        try:
            match task:
                case Check():
                    again = Again(self._checks.check(task.box), self._timing.shortest_gap)
                case Look() | Announce():
                    again = self._poll_or_put_off(task)
                case _:
                    assert_never(task)
            self._outages.worked(what)
        except BaseException as error:  # one box's database or code must not stop the others
            if isinstance(task, Announce):
                self._schedule.announce(task.box_name, task.buckets, within=self._tactic.unprompted)
            if isinstance(error, QueueUnavailable) or ends_the_worker(error):
                raise
            pause = self._outages.failed(what, error, box=task.box)
            again = Again(pause, pause)
        finally:
            self._schedule.done(task, next_in=again.next_in, not_before=again.not_before)

    # ── a poll ───────────────────────────────────────────────────────────────────────────────────────

    def _poll_or_put_off(self, task: Poll) -> Again:
        """Polls through the middlewares; one that does not call the next postpones the poll, as a throttler does."""
        try:
            again: Again = self._poll_through(task)
        except NotCalledOn as error:
            decision = Decision(Answer.SKIP, retry_in=self._tactic.unprompted)
            self._tell_throttled(task, "middleware", decision, held_back=str(error))
            return self._put_off(task, decision)
        return again

    def _poll(self, task: Poll) -> Again:
        objection = self._tactic.ask(self._moment(task))
        if objection is not None:
            throttler, decision = objection
            self._tell_throttled(task, throttler, decision)
            return self._put_off(task, decision)
        if not self._leases.hold(task.box, task.partition):
            # The worker that holds the lease receives the same announcements.
            return Again(NEVER, self._timing.shortest_gap)
        started = self._clock.monotonic()
        with self._tracer.polling(task.box, task.partition):
            polled = self._look(task) if isinstance(task, Look) else self._push(task)
        seconds = self._clock.monotonic() - started
        self._observer.see(
            events.Polled(task.box, task.partition, found=polled.found, pushed=polled.pushed, seconds=seconds)
        )
        self._leases.keep(task.box, task.partition)
        # Every bucket with due rows is now queued or in progress, and its holder drains it, however many rows it has.
        return Again(NEVER, self._gap(task, polled, seconds=seconds))

    def _look(self, task: Look) -> Polled:
        polled = self._looks.queue_due(task)
        if polled.new:
            self._tactic.found_new_rows(task.box)
        if not polled.found and task.prompted:
            # Rows were committed, but none is due yet. A check finds out when the first will be.
            self._schedule.check(task.box_name, within=self._timing.longest_gap)
        return polled

    def _push(self, task: Announce) -> Polled:
        now = int(self._clock.now().timestamp())
        pushed = self._queue_jobs(task.box, [Job(bucket, now, ANY_ID, named=True) for bucket in sorted(task.buckets)])
        return Polled(len(task.buckets), pushed)

    def _gap(self, task: Poll, polled: Polled, *, seconds: float) -> float:
        """Seconds until the next poll of the partition, which even a wake-up cannot shorten."""
        if polled.pushed or not polled.found:
            self._gaps.pop(task.key, None)
            return max(self._timing.shortest_gap, 2 * seconds)
        # All due rows are already being worked on: poll less and less often.
        longest = self._timing.longest_named_gap if isinstance(task, Announce) else self._timing.longest_gap
        gap = min(longest, 2 * self._gaps.get(task.key, self._timing.shortest_gap))
        self._gaps[task.key] = gap
        return gap

    # ── postponing a poll ────────────────────────────────────────────────────────────────────────────

    def _moment(self, task: Poll) -> Moment:
        prompted = task.prompted if isinstance(task, Look) else True
        return Moment(
            box=task.box,
            prompted=prompted,
            now=self._clock.monotonic(),
            unix_now=self._clock.now().timestamp(),
            paused=self._pauses.paused,
            measure=self._lengths.recent if prompted else self._lengths.measure,
        )

    def _tell_throttled(self, task: Poll, throttler: str, decision: Decision, *, held_back: str | None = None) -> None:
        self._observer.see(
            events.Throttled(
                task.box,
                task.partition,
                throttler=throttler,
                status=decision.answer.value,
                seconds=decision.retry_in,
                held_back=held_back,
            )
        )

    def _put_off(self, task: Poll, decision: Decision) -> Again:
        # Ask again, because the request has not been served.
        match task:
            case Announce():
                self._schedule.announce(task.box_name, task.buckets, within=decision.retry_in)
            case Look() if task.prompted:
                self._schedule.wake(task.box_name, [task.partition], within=decision.retry_in)
            case Look():
                pass
            case _:
                assert_never(task)
        return Again(decision.retry_in, min(decision.retry_in, self._timing.longest_gap))
