"""The claim: jobs become running, each with a lease, a token, and its ``lock_key``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, func, literal, select, update

from boxengine.adapters.sql.jobs.moments import clock_now, later
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import ClaimedJob, EventKind, JobState, Waits

MOST_ROWS = 1000
"""That one round looks at."""
ROUNDS = 8
"""A claim that met nothing but jobs behind locks ends after so many; the next one goes on."""
_NAMES = (
    "id",
    "token",
    "task",
    "args",
    "attempt",
    "max_attempts",
    "lease_ttl",
    "priority",
    "idempotency_key",
    "lock_key",
    "partition_key",
    "checkpoint",
    "created_at",
)


def claim(connection: Connection, rows: JobRows, count: int, worker: str) -> list[ClaimedJob]:
    """Takes up to ``count`` jobs in the open transaction.

    Raises:
        IntegrityError: another claim, which had not been committed yet, took a ``lock_key`` of these. Nothing is claimed.
    """
    chosen: list[int] = []
    limit = count
    for _ in range(ROUNDS):
        free, blocked = _split(connection, rows, _ready(connection, rows, limit))
        some = free[: count - len(chosen)]
        _run(connection, rows, some, worker)
        _set_aside(connection, rows, blocked)
        chosen += some
        if len(chosen) >= count or not blocked:
            break
        limit = min(MOST_ROWS, 10 * limit)
    claimed = _read(connection, rows, chosen)
    rows.tell(connection, [(job.id, EventKind.PICKED, {"attempt": job.attempt, "worker": worker}) for job in claimed])
    return claimed


def _ready(connection: Connection, rows: JobRows, limit: int) -> Sequence[tuple[int, str | None]]:
    found = connection.execute(candidates(rows).limit(limit))
    return [(row.id, row.lock_key) for row in found]


def _split(
    connection: Connection, rows: JobRows, candidates: Sequence[tuple[int, str | None]]
) -> tuple[list[int], list[int]]:
    """Those that may run, one of each key, and those behind a lock."""
    keys = {key for _, key in candidates if key is not None}
    held = _held_keys(connection, rows, sorted(keys)) if keys else set()
    free: list[int] = []
    blocked: list[int] = []
    for job_id, key in candidates:
        (blocked if key in held else free).append(job_id)
        if key is not None:
            held.add(key)
    return free, blocked


def _held_keys(connection: Connection, rows: JobRows, keys: Sequence[str]) -> set[str | None]:
    """Keys of running jobs, which cannot end before this transaction: so whoever ends finds what is set aside here."""
    jobs = rows.jobs.c
    held = select(jobs.holds).where(jobs.holds.in_(keys)).order_by(jobs.id)
    return set(connection.scalars(held.with_for_update(read=True, key_share=True)))


def _run(connection: Connection, rows: JobRows, ids: Sequence[int], worker: str) -> None:
    if ids:
        connection.execute(update(rows.jobs).where(rows.jobs.c.id.in_(ids)).values(taken(rows, literal(worker))))


def _set_aside(connection: Connection, rows: JobRows, ids: Sequence[int]) -> None:
    if ids:
        connection.execute(update(rows.jobs).where(rows.jobs.c.id.in_(ids)).values(waits=int(Waits.LOCK)))


def _read(connection: Connection, rows: JobRows, ids: Sequence[int]) -> list[ClaimedJob]:
    if not ids:
        return []
    query = select(*columns(rows)).where(rows.jobs.c.id.in_(ids))
    return jobs_of(connection.execute(query).mappings())


# ── what all claims have in common ───────────────────────────────────────────────────────────────────


def candidates(rows: JobRows) -> Select[Any]:
    """The next jobs in their order, locked."""
    jobs = rows.jobs.c
    query = select(jobs.id, jobs.lock_key).where(rows.queued(Waits.NOTHING)).order_by(jobs.priority, jobs.id)
    return query.with_for_update(skip_locked=True)


def taken(rows: JobRows, worker: ColumnElement[Any]) -> dict[str, Any]:
    """The columns that a claim writes."""
    jobs = rows.jobs.c
    return {
        "status": str(JobState.RUNNING),
        "attempt": jobs.attempt + 1,
        "token": jobs.token + 1,
        "holds": jobs.lock_key,
        "worker": worker,
        "heartbeat_at": clock_now(),
        "lease_expires_at": later(jobs.lease_ttl),
        "started_at": func.coalesce(jobs.started_at, clock_now()),
    }


def columns(rows: JobRows) -> list[ColumnElement[Any]]:
    """The columns that a worker needs of a job."""
    return [rows.jobs.c[name] for name in _NAMES]


def jobs_of(found: Iterable[RowMapping]) -> list[ClaimedJob]:
    """The jobs in the order in which they are to begin."""
    return in_order(
        ClaimedJob(**{**{name: row[name] for name in _NAMES}, "lease_ttl": timedelta(seconds=row["lease_ttl"])})
        for row in found
    )


def in_order(jobs: Iterable[ClaimedJob]) -> list[ClaimedJob]:
    """The same order as a claim's."""
    return sorted(jobs, key=lambda job: (job.priority, job.id))
