"""The claim: jobs become running, each with a lease, a token, and its ``lock_key``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    case,
    func,
    literal,
    literal_column,
    or_,
    select,
    update,
)

from boxengine.adapters.sql.jobs.moments import ago, clock_now, clock_number, later, seconds_until
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
    "trace_context",
)
_FIELDS = (*_NAMES, "previous_start")
Found = tuple[int, str | None]
"""A job's id and its ``lock_key``, as the database compares it."""


def claim(connection: Connection, rows: JobRows, count: int, worker: str, oldest: int = 0) -> list[ClaimedJob]:
    """Takes up to ``count`` jobs in the open transaction, at first up to ``oldest`` that have waited for long.

    Raises:
        IntegrityError: another claim, which had not been committed yet, took a ``lock_key`` of these. Nothing is claimed.
    """
    chosen: list[int] = []
    locked: set[str] = set()
    aged = _ready(connection, aged_candidates(rows, rows.box.aging), oldest) if oldest and rows.box.aging else []
    first, limit = aged, count
    for _ in range(ROUNDS):
        ready = _ready(connection, candidates(rows, besides=locked), limit)
        free, blocked, unknown = _split(connection, rows, list(dict.fromkeys([*first, *ready])))
        some = free[: count - len(chosen)]
        _run(connection, rows, some, worker)
        _set_aside(connection, rows, blocked)
        chosen += some
        locked |= unknown
        if len(chosen) >= count or not (blocked or unknown):
            break
        first, limit = [], min(MOST_ROWS, 10 * limit)
    claimed = _read(connection, rows, chosen, {job_id for job_id, _ in aged})
    rows.tell(connection, [(job.id, EventKind.PICKED, {"attempt": job.attempt, "worker": worker}) for job in claimed])
    return claimed


def _ready(connection: Connection, query: Select[Any], limit: int) -> list[Found]:
    found = connection.execute(query.limit(limit))
    return [(row.id, row.lock_key and _as_compared(connection, row.lock_key)) for row in found]


def _as_compared(connection: Connection, key: str) -> str:
    """The key as ``holds`` is unique: MySQL's collations ignore spaces at its end."""
    return key if connection.dialect.name == "postgresql" else key.rstrip(" ")


def _split(connection: Connection, rows: JobRows, candidates: Sequence[Found]) -> tuple[list[int], list[int], set[str]]:
    """Splits candidates into jobs that may run, one of each key, and jobs behind a lock.

    Left out are those whose key has a holder that somebody has locked: their keys come third.
    """
    keys = {key for _, key in candidates if key is not None}
    held, unknown = _held_keys(connection, rows, sorted(keys)) if keys else (set(), set())
    free: list[int] = []
    blocked: list[int] = []
    for job_id, key in candidates:
        if key in unknown:
            continue
        (blocked if key in held else free).append(job_id)
        if key is not None:
            held.add(key)
    return free, blocked, unknown


def _held_keys(connection: Connection, rows: JobRows, keys: Sequence[str]) -> tuple[set[str], set[str]]:
    """Keys of running jobs, and those of running jobs that somebody has locked.

    The former's jobs cannot end before this transaction does, so their end finds the jobs set aside here. The latter's may be
    about to end, and nobody would find a job set aside behind them. Nor is there a wait for them: a lock that somebody has
    forgotten would stop the box.
    """
    jobs = rows.jobs.c
    running = connection.execute(select(jobs.id, jobs.holds).where(jobs.holds.in_(keys)))
    holders = {row.id: _as_compared(connection, row.holds) for row in running}
    if not holders:
        return set(), set()
    # MySQL knows no SKIP LOCKED beside the only way to write a shared lock that MariaDB knows, too.
    shared = connection.dialect.name == "postgresql"
    look = rows.by_id(select(jobs.holds).where(jobs.id.in_(sorted(holders)), jobs.holds.in_(keys)).order_by(jobs.id))
    found = connection.scalars(look.with_for_update(read=shared, key_share=shared, skip_locked=True))
    held = {_as_compared(connection, key) for key in found}
    return held, set(holders.values()) - held


def _run(connection: Connection, rows: JobRows, ids: Sequence[int], worker: str) -> None:
    if ids:
        connection.execute(update(rows.jobs).where(rows.jobs.c.id.in_(ids)).values(taken(rows, literal(worker))))


def _set_aside(connection: Connection, rows: JobRows, ids: Sequence[int]) -> None:
    if ids:
        connection.execute(update(rows.jobs).where(rows.jobs.c.id.in_(ids)).values(waits=int(Waits.LOCK)))


def _read(connection: Connection, rows: JobRows, ids: Sequence[int], aged: Collection[int]) -> list[ClaimedJob]:
    if not ids:
        return []
    jobs = rows.jobs.c
    query = select(*columns(rows), previous_start(rows, jobs.id, jobs.attempt)).where(jobs.id.in_(ids))
    return in_order(job_of(row, for_age=row[0] in aged) for row in connection.execute(query))


def lag(connection: Connection, rows: JobRows) -> timedelta | None:
    """How long the oldest job that can be claimed has waited; None: there is none."""
    first = select(func.min(rows.jobs.c.available_at)).where(rows.queued(Waits.NOTHING)).scalar_subquery()
    seconds = connection.scalar(select(seconds_until(first)))
    return None if seconds is None else timedelta(seconds=max(0.0, -float(seconds)))


# ── what all claims have in common ───────────────────────────────────────────────────────────────────


def candidates(rows: JobRows, *, besides: Collection[str] = ()) -> Select[Any]:
    """The next jobs in their order, locked.

    Args:
        besides: keys whose jobs are left out.
    """
    jobs = rows.jobs.c
    query = select(jobs.id, jobs.lock_key, jobs.priority).where(rows.queued(Waits.NOTHING))
    if besides:
        query = query.where(or_(jobs.lock_key.is_(None), jobs.lock_key.not_in(sorted(besides))))
    return query.order_by(jobs.priority, jobs.id).with_for_update(skip_locked=True)


def aged_candidates(rows: JobRows, aging: timedelta) -> Select[Any]:
    """Jobs that have waited for longer, the longest wait first. Their rows are locked."""
    jobs = rows.jobs.c
    query = select(jobs.id, jobs.lock_key, jobs.priority).where(rows.queued(Waits.NOTHING))
    query = query.where(jobs.available_at < ago(aging.total_seconds())).order_by(jobs.available_at)
    return query.with_for_update(skip_locked=True)


def taken(rows: JobRows, worker: ColumnElement[Any]) -> dict[str, Any]:
    """The columns that a claim writes."""
    jobs = rows.jobs.c
    return {
        "status": str(JobState.RUNNING),
        "attempt": jobs.attempt + 1,
        # A failover may lose a claim and keep the worker that has it: the next claim must not have the same token.
        "token": func.greatest(jobs.token + 1, clock_number()),
        "checkpoints": 0,
        "holds": jobs.lock_key,
        "worker": worker,
        "heartbeat_at": clock_now(),
        "lease_expires_at": later(jobs.lease_ttl),
        "started_at": func.coalesce(jobs.started_at, clock_now()),
    }


def columns(rows: JobRows) -> list[ColumnElement[Any]]:
    """The columns that a worker needs of a job."""
    return [rows.jobs.c[name] for name in _NAMES]


def previous_start(rows: JobRows, job_id: ColumnElement[Any], attempt: ColumnElement[Any]) -> ColumnElement[Any]:
    """When the attempt before this one was claimed: the journal knows. Read for second and later attempts only."""
    journal = rows.journal.c
    earlier = (
        select(journal.ts)
        .where(journal.job_id == job_id, journal.kind == literal_column(f"'{EventKind.PICKED}'"))
        .where(journal.payload["attempt"].as_integer() == attempt - 1)
        .order_by(journal.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return case((attempt > 1, earlier)).label("previous_start")


def job_of(row: Sequence[Any], *, for_age: bool) -> ClaimedJob:
    """The job of a row that begins with ``columns`` and ``previous_start``. By position: names would take as long as the rest."""
    values = dict(zip(_FIELDS, row, strict=False))
    values["lease_ttl"] = timedelta(seconds=values["lease_ttl"])
    return ClaimedJob(**values, for_age=for_age)


def in_order(jobs: Iterable[ClaimedJob]) -> list[ClaimedJob]:
    """The jobs in the order in which they begin."""
    return sorted(jobs, key=lambda job: (not job.for_age, job.priority, job.id))
