"""How many jobs wait, and for how long: one statement that reads indexes alone, and no more of them than the limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, ScalarSelect, Select, func, select

from boxengine.adapters.sql.jobs import followers
from boxengine.adapters.sql.jobs.moments import seconds_until
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import JobBacklog, Waits

_BY_INDEX = (Waits.NOTHING, Waits.TIME, Waits.LOCK)
"""What an index of the jobs' own table lists."""


def backlog(connection: Connection, rows: JobRows, limit: int) -> JobBacklog:
    """See ``JobStore``."""
    jobs = rows.jobs.c
    ready, delayed, locked = (select(jobs.id).where(rows.queued(each)) for each in _BY_INDEX)
    # In the order of an index: where statistics are old, no plan takes the whole table to be quicker.
    in_order = ready.order_by(jobs.priority, jobs.id), delayed.order_by(jobs.available_at)
    counts = [_number(some, limit) for some in (*in_order, locked, followers.waiting_jobs(rows))]
    first = select(func.min(jobs.available_at)).where(rows.queued(Waits.NOTHING)).scalar_subquery()
    *numbers, seconds = connection.execute(select(*counts, seconds_until(first))).one()
    return JobBacklog(
        ready=numbers[0],
        delayed=numbers[1],
        blocked=min(limit, numbers[2] + numbers[3]),
        waits=timedelta(seconds=max(0.0, -float(seconds or 0))),
    )


def _number(some: Select[Any], limit: int) -> ScalarSelect[Any]:
    return select(func.count()).select_from(some.limit(limit).subquery()).scalar_subquery()
