"""Where long jobs are stored, and the observer of what happens to them.

A job is claimed under a lease and a fence token. The store's clock alone decides when a lease is over; the token decides
whose writes count. A write with an outdated token changes nothing, and the caller is told so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from boxengine.domain.jobs import (
    AfterFailure,
    Beat,
    ClaimedJob,
    Due,
    Ending,
    Held,
    JobBacklog,
    JobBox,
    JobOutcome,
    JobStat,
    JobState,
    Reaped,
)


class JobUnit(Protocol):
    """One attempt's writes. Only the thread that runs the attempt may use it."""

    @property
    def session(self) -> Any:
        """The handler's session: what it writes commits with the next checkpoint or with the end, or not at all."""

    def awaited_session(self, visit: Any) -> Any:
        """The same for a coroutine: the visit's thread runs what the coroutine awaits. Its other calls stay as they are."""

    def checkpoint(self, state: Any) -> bool:
        """Keeps the state for later attempts and commits it with the session's writes; also prolongs the lease.

        Returns False if the job is no longer held: nothing is written then, and the session's writes are undone.
        """

    @property
    def in_use(self) -> bool:
        """Whether the session has begun. If so, an ``end`` that may not have been recorded cannot be tried again."""

    def end(self, ending: Ending, *, progress: Mapping[str, Any] | None = None) -> bool:
        """Like ``JobStore.record``: in one transaction with the session's writes if the attempt succeeded; otherwise undoes them.

        Returns False if the job is no longer held: nothing is written then.
        """

    def close(self) -> None:
        """Rolls back what is not committed."""


class JobStore(Protocol):
    """The jobs of all boxes, as workers use them.

    Every method may raise ``StoreUnavailable``. For ``claim``, ``record``, ``checkpoint`` and ``end`` it is then unknown
    whether they took effect. Jobs that were claimed this way without anybody knowing come back when their lease is over.
    """

    def claim(self, box: JobBox, count: int, *, worker: str, oldest: int = 0) -> Sequence[ClaimedJob]:
        """Takes up to ``count`` jobs: the lowest priority number first, the oldest first among equals.

        Up to ``oldest`` of the ``count`` are claimed before these, whatever their priority: jobs that could have begun longer
        than ``box.aging`` ago, the longest wait first.

        No two jobs with the same ``lock_key`` ever run at once. A job that must wait for its lock is set aside, not claimed.
        """

    def record(self, box: JobBox, outcomes: Sequence[JobOutcome]) -> Collection[int]:
        """Records how these attempts ended, all in one transaction; returns the ids of the jobs that were still held.

        For the others nothing is written, and they do not affect the rest: those that another worker has by now, and those that
        are ``still_held``, whose rows somebody has locked. A job that is to be canceled is not queued again.

        Raises:
            InvalidItem: one of them has a value that cannot be stored. No attempt is recorded then.
        """

    def still_held(self, box: JobBox, held: Sequence[Held]) -> Collection[int]:
        """The ids of those that no other worker has."""

    def unit(self, box: JobBox, job: ClaimedJob) -> JobUnit:
        """The session of one attempt; costs nothing before it is used."""

    def beat(self, box: JobBox, beats: Sequence[Beat]) -> Mapping[int, bool | None]:
        """Prolongs the leases, all at once.

        Returns by id whether the job is to be canceled; None: somebody has locked its row, and its lease is as long as it was.
        A missing id is no longer held.

        Raises:
            InvalidItem: the store cannot hold one of the progresses. No lease is prolonged.
        """

    def give_back(self, box: JobBox, held: Sequence[Held]) -> None:
        """Returns jobs to the queue that were claimed but not begun. Those that are to be canceled end as canceled."""

    def lag(self, box: JobBox) -> timedelta | None:
        """How long the job that has waited longest could have been claimed; None: no job can be claimed."""

    def backlog(self, box: JobBox, *, limit: int) -> JobBacklog:
        """What waits in the box; of each kind at most so many jobs are counted."""

    def promote(self, box: JobBox) -> Due:
        """Makes jobs claimable whose time has come or whose predecessors have ended; cancels those whose predecessors failed.

        Also says whether any job could be claimed before, though perhaps not now: others may be about to claim it.
        """

    def reap(self, box: JobBox) -> Reaped:
        """Takes back jobs whose lease is over: queued again, lost if no attempt is left, or canceled if that was asked for."""

    def delete_finished(self, box: JobBox) -> int:
        """Deletes a batch of the jobs that finished longer ago than the box's retention, and returns its size.

        The size includes jobs that must stay a little longer for their followers, unless that is all of them: then it is 0.
        """


LATEST_EVENTS = 1000
"""Entries of a job's journal that ``show`` returns. One that asks for another attempt again and again has any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Selects jobs. A job must match everything that is given."""

    ids: Sequence[int] | None = None
    states: Sequence[JobState] | None = None
    task: str | None = None
    lock_key: str | None = None


class JobDesk(Protocol):
    """The jobs of all boxes, for people to look at and act on."""

    def list(self, box: JobBox, which: JobFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """Rows as mappings, the newest first."""

    def show(self, box: JobBox, job_id: int) -> Mapping[str, Any] | None:
        """One row; None: no such job.

        ``events`` are the ``LATEST_EVENTS`` of its journal, in order; ``after`` are the jobs that it was created after, each
        with its ``id``, its ``status`` (None: it is deleted), and whether the job still ``waits`` for it.
        """

    def cancel(self, box: JobBox, which: JobFilter) -> int:
        """Cancels queued jobs at once, and asks the handlers of running ones to stop; returns how many jobs in all."""

    def retry(self, box: JobBox, which: JobFilter) -> int:
        """Queues finished jobs again, with all their attempts; returns how many."""

    def stat(self, box: JobBox) -> JobStat:
        """The counts of jobs; finished ones by state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A job to be created, checked."""

    task: str
    args: Any
    max_attempts: int
    lease_ttl: timedelta
    priority: int = 100
    idempotency_key: str | None = None
    lock_key: str | None = None
    partition_key: str = ""
    producer: str | None = None
    consumer_group: str | None = None
    available_at: datetime | None = None
    """A moment with a zone; None: at once, or after ``delay``."""
    delay: timedelta | None = None
    after: tuple[int, ...] = ()
    """The ids of jobs of the same box that it waits for."""
    after_failure: AfterFailure = AfterFailure.CANCEL
    trace_context: Mapping[str, str] | None = None
    """Headers that name the current trace; None: there is none."""


class NewJobs(Protocol):
    """Inserts jobs of one box into the caller's open transaction."""

    def insert(self, session: Any, jobs: Sequence[NewJob]) -> list[int]:
        """The ids in the order given. If a job with the ``idempotency_key`` exists already, the id of that job.

        Raises:
            InvalidItem: one is to wait for a job that does not exist. No job is inserted then.
        """


@dataclass(frozen=True, slots=True)
class JobEnded:
    """An attempt has ended."""

    box: JobBox
    _: KW_ONLY
    end: str
    """succeeded, requeued, failed, canceled, or lost (the lease was lost)."""
    seconds: float
    """From the start of its attempt, when a thread took it, until the end was recorded."""
    job: ClaimedJob
    error: str | None = None
    """Why the attempt failed. None if it did not fail, or if the handler asked for another attempt."""


@dataclass(frozen=True, slots=True)
class JobsReaped:
    """Jobs were taken away from workers that fell silent."""

    box: JobBox
    _: KW_ONLY
    requeued: int
    lost: int


@dataclass(frozen=True, slots=True)
class JobsLeft:
    """The worker stops while handlers are at work: there is no time left to wait for them."""

    box: JobBox
    _: KW_ONLY
    jobs: Sequence[int]
    """Their ids."""


@dataclass(frozen=True, slots=True)
class JobLoad:
    """How many jobs this process runs, and how many it could. Reported every few seconds, so that a dead worker falls silent."""

    box: JobBox
    _: KW_ONLY
    running: int
    threads: int


@dataclass(frozen=True, slots=True)
class JobsWaiting:
    """What waits in a box. Every worker of the box measures it a few times a minute."""

    box: JobBox
    backlog: JobBacklog


JobEvent = JobEnded | JobsReaped | JobsLeft | JobLoad | JobsWaiting


class JobObserver(Protocol):
    """Told what happens to jobs, to count or log it. Must not raise or block. Called from any thread."""

    def see(self, event: JobEvent) -> None: ...
