"""``JobDesk`` over PostgreSQL and MariaDB: people's questions and actions."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select, update

from boxengine.adapters.sql.jobs import followers
from boxengine.adapters.sql.jobs.moments import clock_now
from boxengine.adapters.sql.jobs.rows import JobRows, latest_events, short
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.jobs.wakeup import JobWakeup
from boxengine.domain.jobs import FINAL, EventKind, JobBox, JobStat, JobState, Waits
from boxengine.ports.jobs import LATEST_EVENTS, JobFilter

AT_ONCE = 500
"""Rows in one transaction."""
COUNTED_TO = 100_000
"""Finished jobs, the latest ones."""


class SqlJobDesk:
    """Over the tables of a ``SqlJobs``."""

    def __init__(self, jobs: SqlJobs, *, wakeup: Callable[[str], JobWakeup | None] = lambda _box_name: None) -> None:
        """Args:
        wakeup: by a box's name, what tells its workers; None: they find out at their next look or heartbeat.
        """
        self._jobs = jobs
        self._wakeup = wakeup

    def list(self, box: JobBox, which: JobFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        rows = self._jobs.rows(box)
        query = _filtered(select(rows.jobs), rows, which).order_by(rows.jobs.c.id.desc()).limit(limit)
        with short(self._jobs.engine) as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def show(self, box: JobBox, job_id: int) -> Mapping[str, Any] | None:
        rows = self._jobs.rows(box)
        with short(self._jobs.engine) as connection:
            found = connection.execute(select(rows.jobs).where(rows.jobs.c.id == job_id)).mappings().one_or_none()
            if found is None:
                return None
            events = latest_events(connection, rows, job_id, LATEST_EVENTS)
            after = followers.awaited(connection, rows, job_id)
            return {**found, "after": after, "events": events}

    def cancel(self, box: JobBox, which: JobFilter) -> int:
        rows = self._jobs.rows(box)
        changed = self._in_parts(partial(_cancel_queued, rows=rows, which=which))
        wakeup = self._wakeup(box.name)
        with short(self._jobs.engine) as connection:
            asked = _ask_to_stop(connection, rows, which)
            if asked and wakeup is not None:
                wakeup.tell_of_request(connection)
        return changed + asked

    def retry(self, box: JobBox, which: JobFilter) -> int:
        return self._in_parts(partial(_retry, rows=self._jobs.rows(box), which=which, wakeup=self._wakeup(box.name)))

    def stat(self, box: JobBox) -> JobStat:
        rows = self._jobs.rows(box)
        jobs = rows.jobs.c
        with short(self._jobs.engine) as connection:

            def number(which: ColumnElement[bool]) -> int:
                return connection.scalar(select(func.count()).where(which)) or 0

            behind = connection.scalar(select(func.count()).select_from(followers.waiting_jobs(rows).subquery())) or 0
            ready = number(rows.queued(Waits.NOTHING)) + number(rows.due())
            delayed, taken = number(rows.delayed()), number(rows.is_in(JobState.RUNNING))
            blocked = number(rows.queued(Waits.LOCK)) + behind
            latest = select(jobs.status).where(jobs.finished_at.is_not(None)).order_by(jobs.finished_at.desc())
            ended = latest.limit(COUNTED_TO).subquery()
            finished = {
                JobState(state): count
                for state, count in connection.execute(select(ended.c.status, func.count()).group_by(ended.c.status))
            }
        return JobStat(
            total=ready + taken + delayed + blocked,
            ready=ready,
            taken=taken,
            delayed=delayed,
            blocked=blocked,
            finished=finished,
        )

    def _in_parts(self, change: Callable[..., builtins.list[int]]) -> int:
        """Changes jobs in the order of their ids, one part after the other; returns how many.

        Workers go on meanwhile: a job of an earlier part may be in its old state again, and must not be changed twice.

        Args:
            change: changes the first jobs behind the id ``after``, and returns their ids.
        """
        changed, after = 0, 0
        while True:
            with short(self._jobs.engine) as connection:
                part = change(connection, after=after)
            changed += len(part)
            if len(part) < AT_ONCE:
                return changed
            after = part[-1]


def _filtered(query: Select[Any], rows: JobRows, which: JobFilter) -> Select[Any]:
    jobs = rows.jobs.c
    if which.ids is not None:
        query = query.where(jobs.id.in_(which.ids))
    if which.states is not None:
        query = query.where(rows.is_in(*which.states))
    if which.task is not None:
        query = query.where(jobs.task == which.task)
    if which.lock_key is not None:
        query = query.where(jobs.lock_key == which.lock_key)
    return query


def _locked(
    connection: Connection, rows: JobRows, which: JobFilter, *states: JobState, after: int
) -> builtins.list[Any]:
    jobs = rows.jobs.c
    query = select(jobs.id, jobs.lock_key, jobs.waits).where(rows.is_in(*states), jobs.id > after)
    query = _filtered(query, rows, which).order_by(jobs.id).limit(AT_ONCE).with_for_update()
    return builtins.list(connection.execute(query))


def _cancel_queued(connection: Connection, *, rows: JobRows, which: JobFilter, after: int) -> builtins.list[int]:
    found = _locked(connection, rows, which, JobState.QUEUED, after=after)
    ids = [row.id for row in found]
    if found:
        values = {"status": str(JobState.CANCELED), "cancel_requested": True, "finished_at": clock_now()}
        connection.execute(update(rows.jobs).where(rows.jobs.c.id.in_(ids)).values(values))
        followers.canceled(connection, rows, [row.id for row in found if row.waits == Waits.JOBS])
        # One that had been let go for its key, and now will not run, passes its turn on.
        rows.let_go(connection, {row.lock_key for row in found if row.waits == Waits.NOTHING})
        rows.tell(connection, [(job_id, EventKind.CANCELED, {"by": "hand"}) for job_id in ids])
    return ids


def _ask_to_stop(connection: Connection, rows: JobRows, which: JobFilter) -> int:
    jobs = rows.jobs.c
    query = select(jobs.id).where(rows.is_in(JobState.RUNNING), jobs.cancel_requested.is_(False))
    ids = builtins.list(connection.scalars(_filtered(query, rows, which).order_by(jobs.id).with_for_update()))
    if ids:
        connection.execute(update(rows.jobs).where(jobs.id.in_(ids)).values(cancel_requested=True))
    return len(ids)


def _retry(
    connection: Connection, *, rows: JobRows, which: JobFilter, wakeup: JobWakeup | None, after: int
) -> builtins.list[int]:
    ids = [row.id for row in _locked(connection, rows, which, *FINAL, after=after)]
    if ids:
        values = {
            "status": str(JobState.QUEUED),
            "waits": int(Waits.NOTHING),
            "attempt": 0,
            "available_at": clock_now(),
            "cancel_requested": False,
            "finished_at": None,
        }
        connection.execute(update(rows.jobs).where(rows.jobs.c.id.in_(ids)).values(values))
        followers.wait_again(connection, rows, ids)
        rows.tell(connection, [(job_id, EventKind.REQUEUE, {"by": "hand"}) for job_id in ids])
        if wakeup is not None:
            wakeup.tell(connection)
    return ids
