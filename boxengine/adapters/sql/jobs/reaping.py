"""Changes of jobs that no worker makes: a job's time comes, its lease ends, its retention is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, delete, exists, func, select, update

from boxengine.adapters.sql.jobs import followers
from boxengine.adapters.sql.jobs.moments import ago, clock_now, seconds_until
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.adapters.sql.shape.now import utc_now
from boxengine.domain.jobs import EventKind, JobState, Reaped, Waits

AT_ONCE = 1000
"""Rows in one transaction."""
KEYS = 20
"""With jobs behind them, that one look checks."""
SILENT = "its worker fell silent, and the lease ran out"


def promote(connection: Connection, rows: JobRows) -> int:
    """Lets jobs go whose time has come; how many."""
    jobs = rows.jobs.c
    due = list(
        connection.scalars(
            select(jobs.id)
            .where(rows.queued(Waits.TIME), jobs.available_at <= utc_now())
            .order_by(jobs.available_at)
            .limit(AT_ONCE)
            .with_for_update(skip_locked=True)
        )
    )
    if due:
        connection.execute(update(rows.jobs).where(jobs.id.in_(due)).values(waits=int(Waits.NOTHING)))
    return len(due)


def reap(connection: Connection, rows: JobRows) -> Reaped:
    """Takes jobs away from workers whose leases are over."""
    jobs = rows.jobs.c
    silent = connection.execute(
        select(jobs.id, jobs.attempt, jobs.max_attempts, jobs.lock_key, jobs.cancel_requested, jobs.worker)
        .where(rows.is_in(JobState.RUNNING), jobs.lease_expires_at < clock_now())
        .order_by(jobs.id)
        .limit(AT_ONCE)
        .with_for_update(skip_locked=True)
    ).all()
    canceled = [row.id for row in silent if row.cancel_requested]
    again = [row.id for row in silent if not row.cancel_requested and row.attempt < row.max_attempts]
    lost = [row.id for row in silent if row.id not in {*canceled, *again}]
    over = {"finished_at": clock_now(), "error": SILENT}
    for ids, state, values in (
        (canceled, JobState.CANCELED, over),
        (lost, JobState.LOST, over),
        # It could begin from now on: its lag, and its age, count from here.
        (again, JobState.QUEUED, {"waits": int(Waits.NOTHING), "available_at": clock_now(), "error": SILENT}),
    ):
        _take_away(connection, rows, ids, {"status": str(state), **values})
    rows.let_go(connection, {row.lock_key for row in silent})
    kinds = {**dict.fromkeys(canceled, EventKind.CANCELED), **dict.fromkeys(lost, EventKind.LOST)}
    rows.tell(
        connection,
        [
            (
                row.id,
                kinds.get(row.id, EventKind.REQUEUE),
                {"reason": SILENT, "worker": row.worker, "attempt": row.attempt},
            )
            for row in silent
        ],
    )
    return Reaped(requeued=tuple(again), lost=tuple(lost), next_expiry=_next_expiry(connection, rows))


def free_stranded(connection: Connection, rows: JobRows, seen: str) -> str:
    """Lets jobs go that wait for a key that nobody holds: when its holder ended, somebody else had locked their rows.

    Only while no other job is ready: the next job of a key that has just become free is one of those that are.

    Args:
        seen: the key after which this look begins.

    Returns:
        The key after which the next look goes on.
    """
    jobs, holders = rows.jobs.c, rows.jobs.alias("holders")
    if connection.scalar(select(jobs.id).where(rows.queued(Waits.NOTHING)).limit(1)) is not None:
        return seen
    is_held = exists().where(holders.c.holds == jobs.lock_key).label("is_held")
    for _ in range(KEYS):
        behind = select(jobs.lock_key, is_held).where(rows.queued(Waits.LOCK), jobs.lock_key > seen)
        found = connection.execute(behind.order_by(jobs.lock_key).limit(1)).one_or_none()
        if found is None:
            return ""
        seen = found.lock_key
        if not found.is_held:
            rows.let_go(connection, [seen])
    return seen


def delete_finished(connection: Connection, rows: JobRows) -> int:
    """Deletes a batch whose retention is over. Returns its size; 0 if none of it could go."""
    jobs, retention = rows.jobs.c, rows.box.retention.total_seconds()
    old = list(
        connection.scalars(
            select(jobs.id)
            .where(jobs.finished_at < ago(retention))
            .order_by(jobs.finished_at)
            .limit(rows.box.deletion_batch_size)
            .with_for_update(skip_locked=True)
        )
    )
    # A follower that nobody has looked at yet must still learn how its predecessor ended.
    gone = list(followers.forget(connection, rows, old)) if old else old
    if not gone:
        return 0
    connection.execute(delete(rows.journal).where(rows.journal.c.job_id.in_(gone)))
    connection.execute(delete(rows.jobs).where(jobs.id.in_(gone)))
    return len(old)


def _take_away(connection: Connection, rows: JobRows, ids: list[int], values: dict[str, Any]) -> None:
    if ids:
        changes = {**values, "holds": None, "lease_expires_at": None}
        connection.execute(update(rows.jobs).where(rows.jobs.c.id.in_(ids)).values(changes))


def _next_expiry(connection: Connection, rows: JobRows) -> timedelta | None:
    first = select(seconds_until(func.min(rows.jobs.c.lease_expires_at))).where(rows.is_in(JobState.RUNNING))
    seconds = connection.scalar(first)
    return None if seconds is None else timedelta(seconds=float(seconds))
