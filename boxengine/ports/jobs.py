"""Where long jobs are kept, and who is told of them.

A job is claimed under a lease and a fence token. The store's clock alone decides when a lease is over; the token decides
whose writes count. A write under a token that is no longer the job's changes nothing and says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, Protocol

from boxengine.domain.jobs import (
    AfterFailure,
    Beat,
    ClaimedJob,
    Due,
    Ending,
    Held,
    JobBox,
    JobOutcome,
    JobStat,
    JobState,
    Reaped,
)


class JobUnit(Protocol):
    """One attempt's writes. Belongs to the thread that runs the attempt."""

    @property
    def session(self) -> Any:
        """The handler's session: what it writes commits with the next checkpoint or with the end, or not at all."""

    def awaited_session(self, visit: Any) -> Any:
        """The same for a coroutine: what it awaits is done by the thread of this visit, whose other calls stay as they are."""

    def checkpoint(self, state: Any) -> bool:
        """Keeps the state for later attempts and commits it with the session's writes; also prolongs the lease.

        Returns False if the job is no longer held: then nothing is written, and the session's writes are undone.
        """

    @property
    def in_use(self) -> bool:
        """Whether the session has begun: then an end that may not have been recorded cannot be tried again."""

    def end(self, ending: Ending, *, progress: Mapping[str, Any] | None = None) -> bool:
        """As ``JobStore.record``, in one transaction with the session's writes if the attempt succeeded; else those are undone.

        Returns False if the job is no longer held: then nothing is written.
        """

    def close(self) -> None:
        """Undoes what is not committed."""


class JobStore(Protocol):
    """The jobs of all boxes, as workers use them.

    Every method may raise ``StoreUnavailable``. After ``claim``, ``record``, ``checkpoint`` or ``end`` it is then unknown
    whether it was done; claimed jobs that nobody knows of come back when their lease is over.
    """

    def claim(self, box: JobBox, count: int, *, worker: str, oldest: int = 0) -> Sequence[ClaimedJob]:
        """Takes up to ``count`` jobs: the lowest priority number first, the oldest first among equals.

        Before these come up to ``oldest`` of the ``count``: jobs that could have begun longer than ``box.aging`` ago, the longest
        wait first, whatever their priority.

        Of one ``lock_key`` no two are ever running. Jobs that have to wait for their lock are set aside, not claimed.
        """

    def record(self, box: JobBox, outcomes: Sequence[JobOutcome]) -> Collection[int]:
        """Records how many attempts ended, all in one transaction. The ids of those that were still held.

        For the others nothing is written, and they do not stand in the way of the rest. A job that is to be canceled is not
        queued again.

        Raises:
            InvalidItem: one of them has a value that cannot be stored. None is recorded.
        """

    def unit(self, box: JobBox, job: ClaimedJob) -> JobUnit:
        """The session of one attempt; costs nothing before it is used."""

    def beat(self, box: JobBox, beats: Sequence[Beat]) -> Mapping[int, bool]:
        """Prolongs the leases, all at once. By id, whether the job is to be canceled; ids left out are held no longer."""

    def give_back(self, box: JobBox, held: Sequence[Held]) -> None:
        """Queues jobs again that were claimed and not begun."""

    def lag(self, box: JobBox) -> timedelta | None:
        """How long the oldest of the jobs that can be claimed has waited for it; None: there is none."""

    def promote(self, box: JobBox) -> Due:
        """Lets jobs go whose time has come, and those whose predecessors have ended; cancels those whose predecessors failed."""

    def reap(self, box: JobBox) -> Reaped:
        """Takes jobs away whose lease is over: queued again, or lost if no attempt is left. Canceled, if that was asked for."""

    def delete_finished(self, box: JobBox) -> int:
        """Deletes a batch of jobs that finished longer than the box's retention ago; how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs a person means. All that is given must hold."""

    ids: Sequence[int] | None = None
    states: Sequence[JobState] | None = None
    task: str | None = None
    lock_key: str | None = None


class JobDesk(Protocol):
    """The jobs of all boxes, as people act on them."""

    def list(self, box: JobBox, which: JobFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """Rows as mappings, the newest first."""

    def show(self, box: JobBox, job_id: int) -> Mapping[str, Any] | None:
        """One row; None: there is none.

        ``events`` is its journal, the oldest first; ``after`` are the jobs that it was created after, each with its ``id``,
        its ``status`` (None: it is deleted), and whether the job still ``waits`` for it.
        """

    def cancel(self, box: JobBox, which: JobFilter) -> int:
        """Cancels queued jobs at once, and asks the handlers of running ones to stop; how many jobs that were."""

    def retry(self, box: JobBox, which: JobFilter) -> int:
        """Queues finished jobs again, with all their attempts; how many."""

    def stat(self, box: JobBox) -> JobStat:
        """Counts, finished ones by state."""


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
    available_at: Any = None
    """A moment with a zone; None: at once, or after ``delay``."""
    delay: timedelta | None = None
    after: tuple[int, ...] = ()
    """Ids of jobs of the same box for which it waits."""
    after_failure: AfterFailure = AfterFailure.CANCEL


class NewJobs(Protocol):
    """Inserts jobs of one box into the caller's open transaction."""

    def insert(self, session: Any, jobs: Sequence[NewJob]) -> list[int]:
        """The ids in the order given; where a job with the ``idempotency_key`` is there already, that job's id.

        Raises:
            InvalidItem: one is to wait for a job that is not there. None is inserted then.
        """


@dataclass(frozen=True, slots=True)
class JobEnded:
    """An attempt is over."""

    box: JobBox
    _: KW_ONLY
    end: str
    """succeeded, requeued, failed, canceled, or lost: its lease was."""
    seconds: float
    """Since it was claimed."""
    job: int | None = None
    """Its id."""
    attempt: int = 1
    error: str | None = None
    """Why the attempt failed. None where it did not, also where the handler asked for another one."""


@dataclass(frozen=True, slots=True)
class JobsReaped:
    """Jobs of workers that fell silent were taken away from them."""

    box: JobBox
    _: KW_ONLY
    requeued: int
    lost: int


@dataclass(frozen=True, slots=True)
class JobLoad:
    """How many jobs this process runs, of how many it could. Told every few seconds, so that a dead worker falls silent."""

    box: JobBox
    _: KW_ONLY
    running: int
    threads: int


JobEvent = JobEnded | JobsReaped | JobLoad


class JobObserver(Protocol):
    """Told what happens to jobs; counts and logs as it likes. Must not raise and must not block. Called from any thread."""

    def see(self, event: JobEvent) -> None: ...
