"""Questions about long jobs that a person waits for: answered in milliseconds on a table of millions."""

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
    """Which jobs a person looks for. All that is given must hold."""

    states: frozenset[JobState] = frozenset()
    """None of them: any."""
    ids: tuple[int, ...] = ()
    task: str | None = None
    lock_key: str | None = None
    idempotency_key: str | None = None
    error: str | None = None
    """Text in the error."""
    created_from: datetime | None = None
    created_before: datetime | None = None


class Awaited(NamedTuple):
    """A job for which another one waits."""

    id: int
    status: str | None
    """None: it is not in the table any more."""


class JobsFound(NamedTuple):
    """The result of one look."""

    rows: Sequence[JobRow]
    """The highest id first, without arguments, checkpoints and results."""
    searched_to: int | None
    """The id up to which jobs were looked at and after which a next look goes on; None: there are no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """How many jobs a box has, each number counted up to a limit, or estimated."""

    ready: Count
    taken: Count
    delayed: Count
    blocked: Count
    """Behind another job."""
    ended: Mapping[JobState, Count] = field(default_factory=dict)
    """Ended jobs by state. In a large table the number of succeeded ones is the planner's estimate."""
    waits: timedelta | None = None
    """How long the oldest of those jobs has waited that will be claimed next; None: none is ready."""

    @property
    def total(self) -> Count:
        """Not finished."""
        return _sum(self.queued, self.taken)

    @property
    def queued(self) -> Count:
        """Not begun, or waiting for another attempt."""
        return _sum(self.ready, self.delayed, self.blocked)


class JobInspector(Protocol):
    """Every method raises ``StoreUnavailable`` where the database does not answer, or not in time."""

    def get(self, box: JobBox, job_id: int) -> JobRow | None:
        """One job with all its columns; None: there is none."""

    def journal(self, box: JobBox, job_id: int, *, limit: int) -> Sequence[JobRow]:
        """The latest events of a job, the oldest of them first."""

    def awaited(self, box: JobBox, job_id: int, *, limit: int) -> Sequence[Awaited]:
        """The jobs for which a job still waits, the lowest ids first."""

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
        """The jobs that are meant on one side of ``start``, itself not among them, the nearest of them; None: from the end
        that lies opposite of ``towards``.

        Args:
            enough: asked after each part of the table that was searched and did not fill the page: whether to leave it at that.
        """

    def count(self, box: JobBox, which: JobSearch, *, limit: int) -> Count:
        """How many jobs are meant, as far as one look tells; at most ``limit`` are counted."""

    def counts(self, box: JobBox, *, limit: int | None) -> JobCounts:
        """The box's jobs by what they wait for and how they ended, at most ``limit`` of each.

        Args:
            limit: None: every job is counted, however long it takes.
        """


def _sum(*parts: Count) -> Count:
    exact = all(each.precision is Precision.EXACT for each in parts)
    return Count(sum(each.number for each in parts), Precision.EXACT if exact else Precision.AT_LEAST)
