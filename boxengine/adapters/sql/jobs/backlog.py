"""How many jobs wait, and for how long: one statement that reads indexes alone, and no more of them than the limit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, ScalarSelect, Select, func, select

from boxengine.adapters.sql.jobs import followers
from boxengine.adapters.sql.jobs.moments import seconds_until
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import JobBacklog, Waits


def backlog(connection: Connection, rows: JobRows, limit: int) -> JobBacklog:
    """See ``JobStore``."""
    jobs = rows.jobs.c
    ready, due, delayed, locked = (
        select(jobs.id).where(which)
        for which in (rows.queued(Waits.NOTHING), rows.due(), rows.delayed(), rows.queued(Waits.LOCK))
    )
    # In the order of an index: where statistics are old, no plan takes the whole table to be quicker.
    parts = (
        ready.order_by(jobs.priority, jobs.id),
        due.order_by(jobs.available_at),
        delayed.order_by(jobs.available_at),
        locked,
        followers.waiting_jobs(rows),
    )
    firsts = (_until_first(rows, waits) for waits in (Waits.NOTHING, Waits.TIME))
    *numbers, first, timed_first = connection.execute(select(*(_number(each, limit) for each in parts), *firsts)).one()
    released, overdue, later, held, after = numbers
    return JobBacklog(
        ready=min(limit, released + overdue),
        delayed=later,
        blocked=min(limit, held + after),
        waits=timedelta(seconds=max(0.0, *(-float(seconds or 0) for seconds in (first, timed_first)))),
    )


def _number(some: Select[Any], limit: int) -> ScalarSelect[Any]:
    return select(func.count()).select_from(some.limit(limit).subquery()).scalar_subquery()


def _until_first(rows: JobRows, waits: Waits) -> Any:
    return seconds_until(select(func.min(rows.jobs.c.available_at)).where(rows.queued(waits)).scalar_subquery())
