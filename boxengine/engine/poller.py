"""The poller: finds rows that are due and queues one job for each bucket that has none queued or in work.

A turn takes one task of the schedule. A *check* asks the store which buckets of a box have anything due, in one cheap
query, and has their partitions polled. A *poll* takes one partition: its tactic, its lease, its rows, its jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.middleware import compose
from boxengine.engine.outages import Outages
from boxengine.engine.pauses import PauseWatch
from boxengine.engine.pipeline import Middleware
from boxengine.engine.schedule import NEVER, Schedule, Task
from boxengine.engine.tactics import GO, Answer, Decision, Moment, Tactic, queue_state
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, JobQueue, Leases, Observer, PendingRow, QueueState, Store, Tracer, Wakeups

LONGEST_IDLE = 5.0
"""Seconds between two checks of a box in which nothing happens while wake-ups work."""
SHORTEST_GAP = 0.002
"""Seconds between two polls of one partition, whoever asks: what arrives in between is taken along."""
LONGEST_GAP = 0.2
"""The same while all that is found is queued or in work already; its holders look again by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollLimits:
    """How much one poll takes."""

    regular: int = 200
    retryable: int = 100
    lease_ttl: timedelta = timedelta(seconds=4)
    take_wait: float = 1.0
    """Seconds that a turn waits for a task."""


class Poller:
    """One turn at a time; any number of threads may take turns."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        store: Store,
        queue: JobQueue,
        leases: Leases,
        pauses: PauseWatch,
        wakeups: Wakeups | None,
        tactic: Tactic,
        middlewares: Sequence[Middleware],
        outages: Outages,
        observer: Observer,
        tracer: Tracer,
        clock: Clock,
        token: str,
        limits: PollLimits = PollLimits(),
    ) -> None:
        """Args:
        token: this worker's own, for the partitions' leases.
        """
        self._schedule = schedule
        self._store = store
        self._queue = queue
        self._pauses = pauses
        self._wakeups = wakeups
        self._tactic = tactic
        self._outages = outages
        self._observer = observer
        self._tracer = tracer
        self._clock = clock
        self._limits = limits
        self._leases = _PartitionLeases(leases, token, ttl=limits.lease_ttl, clock=clock)
        self._poll_through = compose(middlewares, self._poll)
        self._idle: dict[str, float] = {}
        self._gaps: dict[Task, float] = {}

    def turn(self) -> timedelta:
        """Checks or polls what is due; returns at once, or after a while if nothing is."""
        task = self._schedule.take(wait=self._limits.take_wait)
        if task is None:
            return timedelta(0)
        box, what = task.box, f"polling {task.box.name}"
        next_in, not_before = self._tactic.unprompted, SHORTEST_GAP
        try:
            if task.partition is None:
                next_in = self._check(box)
            else:
                next_in, not_before = self._poll_through(task)
            self._outages.worked(what)
        except QueueUnavailable:
            raise
        except Exception as error:  # one box's database or code must not stop the others
            next_in = not_before = self._outages.failed(what, error, box=box)
        finally:
            self._schedule.done(task, next_in=next_in, not_before=not_before)
        return timedelta(0)

    def release(self) -> None:
        """Gives the partitions' leases back, when the worker stops."""
        self._leases.release_all()

    # ── a check ──────────────────────────────────────────────────────────────────────────────────────

    def _check(self, box: Box) -> float:
        """Has partitions with due rows polled; returns the seconds until the next check."""
        name = box.name
        if self._pauses.paused(box):
            return self._tactic.unprompted
        due = self._store.due_buckets(box, box.buckets)
        if due:
            self._idle.pop(name, None)
            self._schedule.wake(name, due, prompt=False)
            return self._tactic.unprompted
        if self._wakeups is None or not self._wakeups.reliable:
            return self._tactic.unprompted
        # Writers wake the poller; checks are for those that do not, and grow rare while they find nothing.
        idle = max(self._tactic.unprompted, min(LONGEST_IDLE, self._idle.get(name, self._tactic.unprompted) * 1.5))
        self._idle[name] = idle
        return idle

    # ── a poll ───────────────────────────────────────────────────────────────────────────────────────

    def _poll(self, task: Task) -> tuple[float, float]:
        """Polls one partition; returns the seconds until it wants to be polled again, and until it may be."""
        box, partition = task.box, task.partition or 0
        decision = self._ask_tactic(task)
        if decision is not GO:
            return decision.retry_in, min(decision.retry_in, LONGEST_GAP)
        if not self._leases.hold(box, partition):
            return NEVER, SHORTEST_GAP
        started = self._clock.monotonic()
        with self._tracer.polling(box, partition):
            rows = self._rows(box, partition)
            pushed = self._queue.push(box, self._jobs(rows)) if rows else 0
        seconds = self._clock.monotonic() - started
        self._observer.polled(box, partition, found=len(rows), pushed=pushed, seconds=seconds)
        if any(row.errors_count == 0 for row in rows):
            self._tactic.found_new_rows(box)
        # Every bucket with due rows is now queued or in work, however many rows it has: its holder drains it.
        return NEVER, self._gap(task, found=bool(rows), pushed=bool(pushed), seconds=seconds)

    def _ask_tactic(self, task: Task) -> Decision:
        box, partition = task.box, task.partition or 0
        moment = Moment(
            box=box,
            prompted=self._schedule.prompted(task),
            now=self._clock.monotonic(),
            unix_now=self._clock.now().timestamp(),
            paused=self._pauses.paused,
            measure=self._measure,
        )

        def told(throttler: str, decision: Decision) -> None:
            if decision.answer is not Answer.NOOP:
                self._observer.throttled(
                    box, partition, throttler=throttler, status=decision.answer.value, seconds=decision.retry_in
                )

        return self._tactic.ask(moment, told=told)

    def _measure(self, box: Box) -> QueueState:
        return queue_state(
            self._queue,
            box,
            self._clock,
            lambda length, lag: self._observer.queue_measured(box, length=length, lag=lag),
        )

    def _rows(self, box: Box, partition: int) -> Sequence[PendingRow]:
        """Due rows: at most ``regular`` that never failed, and at most ``retryable`` that did."""
        limits = self._limits
        buckets = box.partition(partition, self._schedule.partitions(box))
        rows = self._store.poll(box, buckets, limits.regular + limits.retryable)
        regular = [row for row in rows if row.errors_count == 0][: limits.regular]
        retryable = [row for row in rows if row.errors_count > 0][: limits.retryable]
        if len(retryable) == limits.retryable and not regular:
            regular = self._store.poll(box, buckets, limits.regular, regular_only=True)
        return [*regular, *retryable]

    def _jobs(self, rows: Sequence[PendingRow]) -> list[Job]:
        ids: Mapping[int, list[int]] = defaultdict(list)
        for row in rows:
            ids[row.bucket].append(row.id)
        now = int(self._clock.now().timestamp())
        return [Job(bucket, now, tuple(sorted(found))) for bucket, found in ids.items()]

    def _gap(self, task: Task, *, found: bool, pushed: bool, seconds: float) -> float:
        """Seconds for which even a wake-up must wait until the next poll of the partition."""
        if pushed or not found:
            self._gaps.pop(task, None)
            return max(SHORTEST_GAP, 2 * seconds)
        # All that is due is queued or in work: look less and less often, for somebody is at it.
        gap = min(LONGEST_GAP, 2 * self._gaps.get(task, SHORTEST_GAP))
        self._gaps[task] = gap
        return gap


class _PartitionLeases:
    """Leases kept from one poll to the next while they last, so that a poll seldom has to ask."""

    def __init__(self, leases: Leases, token: str, *, ttl: timedelta, clock: Clock) -> None:
        self._leases = leases
        self._token = token
        self._ttl = ttl
        self._clock = clock
        self._renew_at: dict[str, float] = {}

    def hold(self, box: Box, partition: int) -> bool:
        """Whether this worker may poll the partition now."""
        name = f"sbmt:outbox:poller:{box.name}:{partition}:lock"
        now = self._clock.monotonic()
        if now < self._renew_at.get(name, 0.0):
            return True
        if not self._leases.acquire(name, self._token, ttl=self._ttl):
            self._renew_at.pop(name, None)
            return False
        self._renew_at[name] = now + self._ttl.total_seconds() / 2
        return True

    def release_all(self) -> None:
        names, self._renew_at = list(self._renew_at), {}
        try:
            for name in names:
                self._leases.release(name, self._token)
        except QueueUnavailable:
            pass  # they run out by themselves
