"""Writes about a job that somebody holds. Each statement carries the fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, case, func, literal, select, update

from boxengine.adapters.sql.jobs.moments import clock_now, later
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import Beat, EventKind, Held, JobState
from boxengine.errors import CheckpointLost

LOST = (
    "the database does not have the last checkpoint of this attempt, as after a failover that lost commits, or has one that "
    "raised an error; the next attempt goes on from the checkpoint that it has"
)


def beat(connection: Connection, rows: JobRows, beats: Sequence[Beat]) -> dict[int, bool | None]:
    """See ``JobStore``. It waits for no row that somebody has locked, or the leases of the other jobs would run out."""
    jobs = rows.jobs.c
    values: dict[str, Any] = {"heartbeat_at": clock_now(), "lease_expires_at": later(jobs.lease_ttl)}
    told = {each.held.id: each.progress for each in beats if each.progress is not None}
    if told:
        new = {job_id: literal(progress, jobs.progress.type) for job_id, progress in told.items()}
        values["progress"] = case(new, value=jobs.id, else_=jobs.progress)
    asked = (jobs.id, jobs.cancel_requested)
    if connection.dialect.update_returning:
        held = rows.held([each.held for each in beats])
        locked = select(jobs.id).where(held).with_for_update(key_share=True, skip_locked=True).cte("locked")
        which = jobs.id == func.any(func.array(select(locked.c.id).scalar_subquery()))
        found = connection.execute(update(rows.jobs).where(which).values(values).returning(*asked)).all()
    else:
        query = rows.locked([each.held for each in beats], *asked).with_for_update(skip_locked=True)
        found = connection.execute(query).all()
        connection.execute(update(rows.jobs).where(jobs.id.in_([job_id for job_id, _ in found])).values(values))
    answer: dict[int, bool | None] = {job_id: bool(cancel) for job_id, cancel in found}
    others = [each.held for each in beats if each.held.id not in answer]
    if others:
        answer |= dict.fromkeys(still_held(connection, rows, others))
    return answer


def still_held(connection: Connection, rows: JobRows, held: Sequence[Held]) -> set[int]:
    """Waits for no lock."""
    return set(connection.scalars(rows.by_id(select(rows.jobs.c.id).where(rows.held(held)))))


def checkpoint(connection: Connection, rows: JobRows, held: Held, state: Any, *, number: int) -> bool:
    """Whether it is written: the job is still held.

    Args:
        number: how many checkpoints the attempt has made with this one.
    """
    jobs = rows.jobs.c
    values = {
        "checkpoint": state,
        "checkpoints": number,
        "heartbeat_at": clock_now(),
        "lease_expires_at": later(jobs.lease_ttl),
    }
    if connection.dialect.update_returning:
        return connection.execute(update(rows.jobs).where(rows.held([held])).values(values)).rowcount == 1
    if not connection.execute(rows.locked([held], jobs.id)).all():
        return False
    connection.execute(update(rows.jobs).where(jobs.id == held.id).values(values))
    return True


def demand_checkpoints(connection: Connection, rows: JobRows, held: Held, number: int) -> None:
    """Waits for no lock: only the attempt itself writes them.

    Raises:
        CheckpointLost: the job is held, and the database has more or fewer checkpoints of the attempt.
    """
    query = rows.by_id(select(rows.jobs.c.checkpoints).where(rows.held([held])))
    if any(found != number for found in connection.scalars(query)):
        raise CheckpointLost(LOST)


def give_back(connection: Connection, rows: JobRows, held: Sequence[Held]) -> None:
    """Queues these again, as far as they are held, as if they had not been claimed. Cancels those that are to be canceled."""
    jobs = rows.jobs.c
    found = connection.execute(rows.locked(held, jobs.id, jobs.lock_key, jobs.cancel_requested)).all()
    canceled = [row.id for row in found if row.cancel_requested]
    again = [row.id for row in found if not row.cancel_requested]
    for ids, state, values in (
        (canceled, JobState.CANCELED, {"finished_at": clock_now()}),
        (again, JobState.QUEUED, {}),
    ):
        if ids:
            changes = {"status": str(state), "attempt": jobs.attempt - 1, "holds": None, "lease_expires_at": None}
            connection.execute(update(rows.jobs).where(jobs.id.in_(ids)).values(changes | values))
    rows.let_go(connection, {row.lock_key for row in found})
    kinds = dict.fromkeys(canceled, EventKind.CANCELED)
    reason = {"reason": "not begun"}
    rows.tell(connection, [(row.id, kinds.get(row.id, EventKind.REQUEUE), reason) for row in found])
