"""Questions about long jobs, asked by a person who waits: answered in milliseconds on a table of millions of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from boxengine.domain.jobs import JobBox, JobState
from boxengine.ports.people.census import Count, Precision
from boxengine.ports.people.inspection import Towards

JobRow = Mapping[str, Any]
"""A job's columns by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSearch:
    """Selects jobs. A job must match everything that is given."""

    states: frozenset[JobState] = frozenset()
    """Empty: any state."""
    ids: tuple[int, ...] = ()
    task: str | None = None
    lock_key: str | None = None
    idempotency_key: str | None = None
    error: str | None = None
    """Text that the error contains."""
    created_from: datetime | None = None
    created_before: datetime | None = None


class Awaited(NamedTuple):
    """A job that another job waits for."""

    id: int
    status: str | None
    """None: it is no longer in the table."""


class JobsFound(NamedTuple):
    """The result of one search."""

    rows: Sequence[JobRow]
    """The highest id first, without arguments, checkpoints and results."""
    searched_to: int | None
    """The id up to which jobs were searched, and where the next search continues; None: there are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How many jobs a box has; each number is counted up to a limit, or estimated."""

    ready: Count
    taken: Count
    delayed: Count
    blocked: Count
    """Waiting for another job."""
    ended: Mapping[JobState, Count] = field(default_factory=dict)
    """Ended jobs by state. In a large table the number of succeeded ones is the planner's estimate."""
    waits: timedelta | None = None
    """How long the oldest of the jobs that will be claimed next has waited; None: none is ready."""

    @property
    def total(self) -> Count:
        """Not finished."""
        return _sum(self.queued, self.taken)

    @property
    def queued(self) -> Count:
        """Not begun, or waiting for another attempt."""
        return _sum(self.ready, self.delayed, self.blocked)


class JobInspector(Protocol):
    """Every method raises ``StoreUnavailable`` if the database does not answer in time."""

    def get(self, box: JobBox, job_id: int) -> JobRow | None:
        """One job with all its columns; None: no such job."""

    def journal(self, box: JobBox, job_id: int, *, limit: int) -> Sequence[JobRow]:
        """The latest events of a job, in order, the oldest first."""

    def awaited(self, box: JobBox, job_id: int, *, limit: int) -> Sequence[Awaited]:
        """The jobs that a job still waits for, the lowest ids first."""

    def find(
        self,
        box: JobBox,
        which: JobSearch,
        *,
        start: int | None,
        towards: Towards,
        limit: int,
        enough: Callable[[], bool] = lambda: True,
    ) -> JobsFound:
        """The matching jobs nearest to ``start`` on one side of it, without ``start`` itself. None: from the end of the table
        opposite to ``towards``.

        Args:
            enough: asked whether to stop, after each searched part of the table that did not fill the page.
        """

    def count(self, box: JobBox, which: JobSearch, *, limit: int) -> Count:
        """How many jobs match, as far as one search can tell; counts at most ``limit``."""

    def counts(self, box: JobBox, *, limit: int | None) -> JobCounts:
        """The box's jobs by what they wait for and how they ended, at most ``limit`` of each.

        Args:
            limit: None: counts every job, however long that takes.
        """


def _sum(*parts: Count) -> Count:
    exact = all(each.precision is Precision.EXACT for each in parts)
    return Count(sum(each.number for each in parts), Precision.EXACT if exact else Precision.AT_LEAST)
