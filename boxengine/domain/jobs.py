"""Long jobs: a box of them, a claimed one, and how an attempt can end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any

from boxengine.domain.names import url_name


class JobState(StrEnum):
    """The state of a job. The last four are final, until somebody asks for a retry."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """Its handler raised, and no attempt was left."""
    CANCELED = "canceled"
    LOST = "lost"
    """Its worker fell silent, and no attempt was left. It is unknown how far the job got."""


FINAL = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED, JobState.LOST)


class Executor(StrEnum):
    """Where the handlers of a box run."""

    THREAD = "thread"
    PROCESS = "process"
    """In child processes, which can be killed and use cores of their own."""


class Waits(IntEnum):
    """What a queued job waits for besides a free thread. Claims look only at jobs that wait for nothing."""

    NOTHING = 0
    TIME = 1
    """It waits for its ``available_at``."""
    LOCK = 2
    """It waits for another job with its ``lock_key``; the end of that job releases the next one."""
    JOBS = 3
    """It waits until the jobs that it was created ``after`` have ended."""


class EventKind(StrEnum):
    """The events in a job's journal. Heartbeats are too many for it; the job's row holds the last one."""

    QUEUED = "queued"
    PICKED = "picked"
    REQUEUE = "requeue"
    DONE = "done"
    FAILED = "failed"
    CANCELED = "canceled"
    LOST = "lost"
    RELEASED = "released"
    """The jobs that it waited for have ended."""


class AfterFailure(StrEnum):
    """What happens to a job when one that it waits for does not succeed."""

    CANCEL = "cancel"
    """The job is canceled, with the reason in its error."""
    RUN = "run"
    """The job runs once the others have ended, however they end."""


def end_of_waiting(predecessor: str | None, after_failure: AfterFailure) -> bool | None:
    """Whether a job may stop waiting for another one; None: it can never succeed, and the job is to be canceled.

    Args:
        predecessor: the other job's status; None: it is not in its table any more.
    """
    if predecessor in (JobState.QUEUED, JobState.RUNNING):
        return False
    return True if predecessor == JobState.SUCCEEDED or after_failure is AfterFailure.RUN else None


def why_canceled(predecessor: int, status: str | None) -> str:
    """The error of a job that is canceled because of another one."""
    return f"job {predecessor}, for which it waited, {_HOW_IT_ENDED.get(status or '', 'is not there any more')}"


_HOW_IT_ENDED: Mapping[str, str] = {
    JobState.FAILED: "failed",
    JobState.CANCELED: "was canceled",
    JobState.LOST: "was lost",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBox:
    """One table of jobs with one policy. Immutable; created from the settings."""

    name: str
    table: str
    owner: str | None = None
    concurrency: int = 2
    """How many jobs, or batches, one process runs at once."""
    weight: int = 1
    """How many turns it has of the threads that boxes share, compared with others that are as far behind."""
    batch_size: int = 10
    """How many jobs a handler of many gets at most."""
    max_attempts: int = 5
    """The default for jobs that do not set their own; ``lease_ttl`` likewise."""
    lease_ttl: timedelta = timedelta(seconds=60)
    retry_interval: timedelta = timedelta(seconds=30)
    """The pause after a failed attempt, times the attempt's number."""
    aging: timedelta | None = timedelta(minutes=10)
    """A job that could have begun so long ago may go before more urgent ones; None: priority alone decides."""
    timeout: timedelta | None = None
    """How long one attempt may take; None: no limit."""
    executor: Executor = Executor.THREAD
    retention: timedelta = timedelta(weeks=1)
    """How long finished jobs stay."""
    deletion_batch_size: int = 1000
    twin: bool = False
    """Whether the name of another box differs from this one in nothing but ``/`` and ``_``."""

    @property
    def label(self) -> str:
        """The name in metrics: a namespace is set off with a dash."""
        return self.name.replace("/", "-")

    @property
    def url_name(self) -> str:
        """See ``names.url_name``."""
        return url_name(self.name, twin=self.twin)

    def pause_after(self, attempt: int) -> timedelta:
        """How long to wait after this attempt, which failed."""
        return self.retry_interval * max(1, attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedJob:
    """A job that a worker holds, as it was when it was claimed."""

    id: int
    token: int
    """The fence: it rises with every claim of the job, and every later write carries it."""
    task: str
    args: Any
    attempt: int
    """1 for the first."""
    max_attempts: int
    lease_ttl: timedelta
    priority: int = 100
    idempotency_key: str | None = None
    lock_key: str | None = None
    partition_key: str = ""
    checkpoint: Any = None
    """What an earlier attempt saved."""
    created_at: datetime | None = None
    previous_start: datetime | None = None
    """When the attempt before this one was claimed; None in the first."""
    trace_context: Mapping[str, str] | None = None
    """Headers that name the trace of its creation."""
    for_age: bool = False
    """Whether it was claimed because it had waited for long, not for its priority."""

    @property
    def held(self) -> Held:
        """The id and token that fence its writes."""
        return Held(self.id, self.token)


@dataclass(frozen=True, slots=True)
class Held:
    """A job, and the token with which somebody believes they hold it."""

    id: int
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The handler returned."""

    result: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """The job goes back to the queue."""

    pause: timedelta
    error: str | None = None
    counts: bool = True
    """False: as if the attempt had never begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The job is given up."""

    error: str


@dataclass(frozen=True, slots=True)
class Canceled:
    """Somebody asked for it, and the handler stopped."""


Ending = Succeeded | Requeued | Failed | Canceled
"""How an attempt ended."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How one attempt ended, ready to be recorded."""

    job: ClaimedJob
    ending: Ending
    progress: Mapping[str, Any] | None = None
    """The last progress, if it is not stored yet."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life for one job."""

    held: Held
    progress: Mapping[str, Any] | None = None
    """None: unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """What became of jobs whose lease had run out."""

    requeued: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    next_expiry: timedelta | None = None
    """Time until the first of the remaining leases runs out unless extended; None: nothing runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The result of a look at what may be done in a box."""

    promoted: int = 0
    """How many jobs may be claimed since now."""
    ready: bool = False
    """Whether any job could be claimed already."""
    next_due: timedelta | None = None
    """Time until the next one is due; None: none waits."""
    followers: bool = False
    """Whether jobs wait for other jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBacklog:
    """How many jobs of a box have not begun, each kind up to a limit."""

    ready: int
    """Includes those whose time has come but that no worker has made claimable yet, as while the box is paused."""
    delayed: int
    blocked: int
    """As in ``JobStat``."""
    waits: timedelta
    """How long the ready job that has waited longest could have begun; zero: none is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStat:
    """How many jobs a box has, by state."""

    total: int
    """Not finished."""
    ready: int
    taken: int
    delayed: int
    blocked: int
    """Waiting for another job: with their ``lock_key``, or one that they were created ``after``."""
    finished: Mapping[JobState, int] = field(default_factory=dict)
