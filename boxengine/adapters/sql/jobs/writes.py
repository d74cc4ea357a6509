"""What is written about a job that somebody holds. Each statement carries the fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from sqlalchemy import Connection, case, literal, select, update

from boxengine.adapters.sql.jobs.moments import clock_now, later
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import (
    Beat,
    Canceled,
    ClaimedJob,
    Ending,
    EventKind,
    Failed,
    Held,
    JobState,
    Requeued,
    Succeeded,
    Waits,
)

Event = tuple[int, EventKind, Mapping[str, Any] | None]
_LET_GO: Mapping[str, Any] = {"holds": None, "lease_expires_at": None}
"""What every end writes."""


def beat(connection: Connection, rows: JobRows, beats: Sequence[Beat]) -> dict[int, bool]:
    """Prolongs all these leases; by id whether the job is to be canceled, for those that are still held."""
    jobs = rows.jobs.c
    held = rows.held([each.held for each in beats])
    values: dict[str, Any] = {"heartbeat_at": clock_now(), "lease_expires_at": later(jobs.lease_ttl)}
    told = {each.held.id: each.progress for each in beats if each.progress is not None}
    if told:
        new = {job_id: literal(progress, jobs.progress.type) for job_id, progress in told.items()}
        values["progress"] = case(new, value=jobs.id, else_=jobs.progress)
    statement = update(rows.jobs).where(held).values(values)
    asked = (jobs.id, jobs.cancel_requested)
    if connection.dialect.update_returning:
        found = connection.execute(statement.returning(*asked)).all()
    else:
        connection.execute(statement)
        found = connection.execute(select(*asked).where(held)).all()
    return {job_id: bool(cancel) for job_id, cancel in found}


def checkpoint(connection: Connection, rows: JobRows, held: Held, state: Any) -> bool:
    """Whether it is written: the job is still held."""
    values = {"checkpoint": state, "heartbeat_at": clock_now(), "lease_expires_at": later(rows.jobs.c.lease_ttl)}
    return _fenced(connection, rows, held, values)


def end(
    connection: Connection, rows: JobRows, job: ClaimedJob, ending: Ending, progress: Mapping[str, Any] | None
) -> bool:
    """Whether it is written: the job is still held."""
    also = {} if progress is None else {"progress": progress}
    match ending:
        case Succeeded(result=result):
            values: dict[str, Any] = {
                "status": str(JobState.SUCCEEDED),
                "result": result,
                "error": None,
                "finished_at": clock_now(),
            }
            event: Event = (job.id, EventKind.DONE, {"attempt": job.attempt})
        case Requeued():
            return _requeue(connection, rows, job, ending, also) or _write(
                connection, rows, job, *_canceled(job), also=also
            )
        case Failed(error=error):
            values = {"status": str(JobState.FAILED), "error": error, "finished_at": clock_now()}
            event = (job.id, EventKind.FAILED, {"attempt": job.attempt, "error": _first_line(error)})
        case Canceled():
            values, event = _canceled(job)
        case never:
            assert_never(never)
    return _write(connection, rows, job, values, event, also=also)


def give_back(connection: Connection, rows: JobRows, held: Sequence[Held]) -> None:
    """Queues these again, as far as they are held, as if they had not been claimed."""
    jobs = rows.jobs.c
    found = connection.execute(select(jobs.id, jobs.lock_key).where(rows.held(held)).with_for_update()).all()
    if not found:
        return
    connection.execute(
        update(rows.jobs)
        .where(jobs.id.in_([job_id for job_id, _ in found]))
        .values(status=str(JobState.QUEUED), attempt=jobs.attempt - 1, **_LET_GO)
    )
    rows.let_go(connection, [key for _, key in found])
    rows.tell(connection, [(job_id, EventKind.REQUEUE, {"reason": "not begun"}) for job_id, _ in found])


def _requeue(connection: Connection, rows: JobRows, job: ClaimedJob, ending: Requeued, also: Mapping[str, Any]) -> bool:
    """Unless it is to be canceled."""
    jobs, pause = rows.jobs.c, ending.pause.total_seconds()
    values = {
        "status": str(JobState.QUEUED),
        "waits": int(Waits.TIME if pause > 0 else Waits.NOTHING),
        "available_at": later(pause),
        "error": ending.error,
        **({} if ending.counts else {"attempt": jobs.attempt - 1}),
    }
    payload = {"attempt": job.attempt, "in": pause, **({"error": _first_line(ending.error)} if ending.error else {})}
    event = (job.id, EventKind.REQUEUE, payload)
    return _write(connection, rows, job, values, event, also=also, unless_canceled=True)


def _canceled(job: ClaimedJob) -> tuple[dict[str, Any], Event]:
    values = {"status": str(JobState.CANCELED), "finished_at": clock_now()}
    return values, (job.id, EventKind.CANCELED, {"attempt": job.attempt})


def _write(
    connection: Connection,
    rows: JobRows,
    job: ClaimedJob,
    values: Mapping[str, Any],
    event: Event,
    *,
    also: Mapping[str, Any],
    unless_canceled: bool = False,
) -> bool:
    if not _fenced(connection, rows, job.held, {**values, **_LET_GO, **also}, unless_canceled=unless_canceled):
        return False
    rows.let_go(connection, [job.lock_key])
    rows.tell(connection, [event])
    return True


def _fenced(
    connection: Connection, rows: JobRows, held: Held, values: Mapping[str, Any], *, unless_canceled: bool = False
) -> bool:
    statement = update(rows.jobs).where(rows.held([held])).values(values)
    if unless_canceled:
        statement = statement.where(rows.jobs.c.cancel_requested.is_(False))
    return connection.execute(statement).rowcount == 1


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""
