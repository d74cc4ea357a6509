"""The poller: finds rows that are due and queues one job for each bucket that has none queued or in work.

A turn takes one task of the schedule. A *check* asks the store which buckets of a box that nobody is at have anything
due, in one cheap query, and has their partitions polled. A *poll* takes one partition: its tactic, its lease, its rows,
its jobs. Where the writer of a row has said which bucket it is in, there is nothing to be found out: the poll queues the
bucket and leaves the database alone, a round trip less on the way of a fresh item.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice

from boxengine.domain.box import Box
from boxengine.domain.job import ANY_ID, Job
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.middleware import NotCalledOn, compose
from boxengine.engine.delivering.pipeline import Middleware
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import NEVER, Schedule, Task
from boxengine.engine.polling.tactics import GO, Answer, Decision, Moment, Tactic, queue_state
from boxengine.engine.running.outages import Outages
from boxengine.errors import QueueUnavailable
from boxengine.ports import (
    Clock,
    Duty,
    JobQueue,
    LeaseName,
    Leases,
    Observer,
    PendingRow,
    QueueState,
    Store,
    Tracer,
    Wakeups,
)

LONGEST_IDLE = 5.0
"""Seconds between two checks of a box in which nothing happens while wake-ups work."""
SURVEYED = 600.0
"""The same where a survey tells of new rows."""
LOOK_AGAIN = 0.4
"""The same while rows are due: whoever is at them may have died, and its leases run out any moment."""
SHORTEST_LOOK = 0.02
"""Seconds between two checks of a box in which rows come due one after the other."""
SHORTEST_GAP = 0.002
"""Seconds between two polls of one partition, whoever asks: what arrives in between is taken along."""
EMPTY_FOR = 1.0
"""Seconds for which a queue that was seen empty is taken for short when a commit asks for a poll: a round trip less on the
way of a fresh item. At worst one poll goes out that a long queue should have put off."""
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


def never_quiet(_box: Box) -> bool:
    """Of boxes that no survey looks at."""
    return False


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
        quiet: Callable[[Box], bool] = never_quiet,
        limits: PollLimits = PollLimits(),
    ) -> None:
        """Args:
        token: this worker's own, for the partitions' leases.
        quiet: whether a survey has seen that the box has no pending row, and will see when it gets one.
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
        self._quiet = quiet
        self._idle: dict[str, float] = {}
        self._gaps: dict[Task, float] = {}
        self._empty_at: dict[str, float] = {}
        """By box, when its queue was last seen empty (monotonic)."""

    def turn(self) -> timedelta:
        """Checks or polls what is due; returns at once, or after a while if nothing is."""
        task = self._schedule.take(wait=self._limits.take_wait)
        if task is not None:
            self._do(task)
        return timedelta(0)

    def queue_told(self) -> None:
        """Queues the buckets that the schedule was told of, and returns at once; the database is not asked.

        Where Redis does not answer, they are left to a later turn, which will tell of it.
        """
        try:
            while (task := self._schedule.take_one_told()) is not None:
                self._do(task)
        except QueueUnavailable:
            return

    def _do(self, task: Task) -> None:
        box, what = task.box, f"polling {task.box.name}"
        next_in, not_before = NEVER if task.told else self._tactic.unprompted, SHORTEST_GAP
        try:
            if task.partition is None:
                next_in = self._check(box)
            else:
                next_in, not_before = self._poll_or_put_off(task)
            self._outages.worked(what)
        except QueueUnavailable:
            raise
        except BaseException as error:  # one box's database or code must not stop the others
            if ends_the_worker(error):
                raise
            next_in = not_before = self._outages.failed(what, error, box=box)
        finally:
            self._schedule.done(task, next_in=next_in, not_before=not_before)

    def release(self) -> None:
        """Gives the partitions' leases back, when the worker stops."""
        self._leases.release_all()

    # ── a check ──────────────────────────────────────────────────────────────────────────────────────

    def _check(self, box: Box) -> float:
        """Has partitions with due rows polled; returns the seconds until the next check."""
        name = box.name
        if self._tactic.minds_pauses and self._pauses.paused(box):
            return self._tactic.unprompted
        began = self._clock.monotonic()
        # Asked before the rows are: of a bucket that nobody is at, none is delivered during the look, and no job is for nothing.
        free = self._queue.unattended(box, box.buckets)
        outlook = self._store.outlook(box, free)
        pause = self._pause(box, found=bool(outlook.due) or len(free) < len(box.buckets))
        if outlook.due:
            # Prompted: the rate limit is for polls that find nothing, and these will find something.
            self._schedule.wake(name, outlook.due)
        if outlook.next_in is None:
            return pause
        # Rows that come due one after the other are taken together, and looking for them is a small part of the work.
        soonest = max(SHORTEST_LOOK, 10 * (self._clock.monotonic() - began))
        return min(pause, max(soonest, outlook.next_in.total_seconds()))

    def _pause(self, box: Box, *, found: bool) -> float:
        """Seconds until the next check if nothing is known to come due before."""
        shortest = self._tactic.unprompted
        if found:
            self._idle.pop(box.name, None)
            return min(shortest, LOOK_AGAIN)
        if self._quiet(box):
            return SURVEYED
        if self._wakeups is None or not self._wakeups.reliable:
            return shortest
        # Writers wake the poller; checks are for those that do not, and grow rare while they find nothing.
        idle = max(shortest, min(LONGEST_IDLE, self._idle.get(box.name, shortest) * 1.5))
        self._idle[box.name] = idle
        return idle

    # ── a poll ───────────────────────────────────────────────────────────────────────────────────────

    def _poll_or_put_off(self, task: Task) -> tuple[float, float]:
        """Polls through the middlewares; one that does not call on puts the poll off, as a throttler does."""
        try:
            pauses: tuple[float, float] = self._poll_through(task)
        except NotCalledOn:
            decision = Decision(Answer.SKIP, retry_in=self._tactic.unprompted)
            self._observer.throttled(
                task.box,
                task.partition or 0,
                throttler="middleware",
                status=decision.answer.value,
                seconds=decision.retry_in,
            )
            return self._put_off(task, decision)
        return pauses

    def _poll(self, task: Task) -> tuple[float, float]:
        """Polls one partition; returns the seconds until it wants to be polled again, and until it may be."""
        box, partition = task.box, task.partition or 0
        decision = self._ask_tactic(task)
        if decision is not GO:
            return self._put_off(task, decision)
        if not self._leases.hold(box, partition):
            self._schedule.take_told(task)  # whoever has the lease was told as well
            return NEVER, SHORTEST_GAP
        started = self._clock.monotonic()
        with self._tracer.polling(box, partition):
            found, pushed = self._queue_told(task) if task.told else self._queue_found(task, partition)
        seconds = self._clock.monotonic() - started
        self._observer.polled(box, partition, found=found, pushed=pushed, seconds=seconds)
        # Every bucket with due rows is now queued or in work, however many rows it has: its holder drains it.
        return NEVER, self._gap(task, found=bool(found), pushed=bool(pushed), seconds=seconds)

    def _put_off(self, task: Task, decision: Decision) -> tuple[float, float]:
        # Put off is not answered: whoever asked is still waiting.
        if task.told:
            self._schedule.tell(task.box.name, self._schedule.take_told(task), within=decision.retry_in)
        elif self._schedule.prompted(task):
            self._schedule.wake(task.box.name, [task.partition or 0], within=decision.retry_in)
        return decision.retry_in, min(decision.retry_in, LONGEST_GAP)

    def _queue_found(self, task: Task, partition: int) -> tuple[int, int]:
        """Looks for due rows and queues their buckets; returns how many rows and jobs."""
        box = task.box
        rows = self._rows(box, partition)
        pushed = self._queue.push(box, self._jobs(rows)) if rows else 0
        if any(row.errors_count == 0 for row in rows):
            self._tactic.found_new_rows(box)
        if not rows and self._schedule.prompted(task):
            # Somebody committed, and nothing is due: perhaps it will be in a moment, which a check finds out.
            self._schedule.check(box.name, within=LONGEST_GAP)
        return len(rows), pushed

    def _queue_told(self, task: Task) -> tuple[int, int]:
        """Queues the buckets that writers have named; returns how many there were, a row of each, and jobs."""
        box, buckets = task.box, self._schedule.take_told(task)
        now = int(self._clock.now().timestamp())
        try:
            pushed = self._queue.push(box, [Job(bucket, now, ANY_ID) for bucket in sorted(buckets)])
        except QueueUnavailable:
            self._schedule.tell(box.name, buckets, within=self._tactic.unprompted)
            raise
        return len(buckets), pushed

    def _ask_tactic(self, task: Task) -> Decision:
        box, partition = task.box, task.partition or 0
        prompted = self._schedule.prompted(task)
        moment = Moment(
            box=box,
            prompted=prompted,
            now=self._clock.monotonic(),
            unix_now=self._clock.now().timestamp(),
            paused=self._pauses.paused,
            measure=partial(self._measure, prompted=prompted),
        )

        def told(throttler: str, decision: Decision) -> None:
            if decision.answer is not Answer.NOOP:
                self._observer.throttled(
                    box, partition, throttler=throttler, status=decision.answer.value, seconds=decision.retry_in
                )

        return self._tactic.ask(moment, told=told)

    def _measure(self, box: Box, *, prompted: bool) -> QueueState:
        now = self._clock.monotonic()
        if prompted and now - self._empty_at.get(box.name, -NEVER) < EMPTY_FOR:
            return QueueState(0, None)
        state = queue_state(
            self._queue,
            box,
            self._clock,
            lambda length, lag: self._observer.queue_measured(box, length=length, lag=lag),
        )
        if state.length == 0:
            self._empty_at[box.name] = now
        else:
            self._empty_at.pop(box.name, None)
        return state

    def _rows(self, box: Box, partition: int) -> Sequence[PendingRow]:
        """Due rows: at most ``regular`` that never failed, and at most ``retryable`` that did."""
        limits = self._limits
        buckets = box.partition(partition, self._schedule.partitions(box))
        rows = self._store.poll(box, buckets, limits.regular + limits.retryable)
        regular = _fair([row for row in rows if row.errors_count == 0], limits.regular)
        retryable = _fair([row for row in rows if row.errors_count > 0], limits.retryable)
        if len(retryable) >= limits.retryable and not regular:
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


def _fair(rows: Sequence[PendingRow], limit: int) -> Sequence[PendingRow]:
    """About ``limit`` of the rows, of each bucket at least one: a bucket left out here would wait for the next check."""
    if len(rows) <= limit:
        return rows
    firsts = {row.bucket: row for row in reversed(rows)}
    chosen = set(firsts.values())
    others = (row for row in rows if row not in chosen)
    return sorted([*chosen, *islice(others, max(0, limit - len(chosen)))])


class _PartitionLeases:
    """Leases kept from one poll to the next while they last, so that a poll seldom has to ask."""

    def __init__(self, leases: Leases, token: str, *, ttl: timedelta, clock: Clock) -> None:
        self._leases = leases
        self._token = token
        self._ttl = ttl
        self._clock = clock
        self._renew_at: dict[LeaseName, float] = {}

    def hold(self, box: Box, partition: int) -> bool:
        """Whether this worker may poll the partition now."""
        name = LeaseName(Duty.POLLING, box.name, partition)
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
