"""What a worker asks while it may have nothing to do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, func, literal_column, select

from boxengine.adapters.sql.jobs import followers
from boxengine.adapters.sql.jobs.moments import ago, seconds_until
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import Due, JobState, Waits

ONE: ColumnElement[int] = literal_column("1")
"""Not bound: a plan for any limit might sort."""


class Leases(NamedTuple):
    """What the reaper may have to do."""

    next_expiry: timedelta | None
    """Time until a running job's lease ends; None: no job is running."""
    locks: bool
    """Whether a job waits for its ``lock_key``."""


class Looks:
    """Each is one statement, which locks nothing. An idle worker sends them for ever, and making one takes as long as sending it:
    so they are made once.

    Each asks for the first row in an index's order. For ``EXISTS``, a planner that expects many such rows would search the whole
    table for one.
    """

    def __init__(self, rows: JobRows) -> None:
        jobs, retention = rows.jobs.c, rows.box.retention.total_seconds()
        first_due = select(seconds_until(func.min(jobs.available_at))).where(rows.queued(Waits.TIME))
        ready = select(jobs.id).where(rows.queued(Waits.NOTHING)).order_by(jobs.priority, jobs.id).limit(ONE)
        running = rows.is_in(JobState.RUNNING)
        first_over = select(seconds_until(func.min(jobs.lease_expires_at))).where(running)
        locked = select(jobs.lock_key).where(rows.queued(Waits.LOCK)).order_by(jobs.lock_key).limit(ONE)
        old = select(jobs.id).where(jobs.finished_at < ago(retention)).order_by(jobs.finished_at).limit(ONE)
        self._claimable = _together(first_due, followers.some_wait(rows), ready)
        self._reapable = _together(first_over, locked)
        self._deletable = _together(old)

    def claimable(self, connection: Connection) -> Due:
        """When the next job's time comes, whether any waits for another one, and whether any could be claimed."""
        seconds, some_wait, ready = connection.execute(self._claimable).one()
        return Due(next_due=_span(seconds), followers=bool(some_wait), ready=ready is not None)

    def reapable(self, connection: Connection) -> Leases:
        """When the next lease ends, and whether keys are waited for."""
        seconds, locked = connection.execute(self._reapable).one()
        return Leases(_span(seconds), locked is not None)

    def deletable(self, connection: Connection) -> bool:
        """Whether the retention of any job is over."""
        return connection.scalar(self._deletable) is not None


def _together(*questions: Select[Any] | ColumnElement[Any]) -> Select[Any]:
    return select(*(each.scalar_subquery() if isinstance(each, Select) else each for each in questions))


def _span(seconds: Any) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=float(seconds))
