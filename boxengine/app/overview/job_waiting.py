"""The state of a long job, and why it waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from boxengine.app.overview.problems import reason_of
from boxengine.app.overview.words import lasting
from boxengine.domain.jobs import JobBox, JobState, Waits
from boxengine.domain.words import plural
from boxengine.ports.people.inspection import Towards
from boxengine.ports.people.jobs import Awaited, JobInspector, JobRow, JobSearch

MOST_AWAITED = 100
NAMED = 10
"""How many of the jobs that it waits for the sentence names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReasons:
    """Why a job is in its current state."""

    sentences: tuple[str, ...]
    held_by: int | None = None
    """The running job that it waits for."""
    waits_for: tuple[int, ...] = ()
    """The jobs that must end first, because it was created after them; at most 100 of them."""


def job_reasons(box: JobBox, row: JobRow, inspector: JobInspector, *, now: datetime) -> JobReasons:
    """The reasons as far as they are known now.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    holder: int | None = None
    awaited: tuple[Awaited, ...] = ()
    if row["status"] == JobState.QUEUED and row["waits"] == Waits.LOCK and row["lock_key"] is not None:
        which = JobSearch(states=frozenset({JobState.RUNNING}), lock_key=row["lock_key"])
        found = inspector.find(box, which, start=None, towards=Towards.OLDER, limit=1).rows
        holder = int(found[0]["id"]) if found else None
    if row["status"] == JobState.QUEUED and row["waits"] == Waits.JOBS:
        awaited = tuple(inspector.awaited(box, row["id"], limit=MOST_AWAITED))
    sentences = tuple(_sentences(row, holder, awaited, now))
    return JobReasons(sentences=sentences, held_by=holder, waits_for=tuple(each.id for each in awaited))


def _sentences(row: JobRow, holder: int | None, awaited: Sequence[Awaited], now: datetime) -> Iterator[str]:
    match row["status"]:
        case JobState.QUEUED:
            yield _queued(row, holder, awaited, now)
            if row["error"] and not row["attempt"]:
                yield f"It was queued again by hand. Before: {reason_of(row['error'])}"
            elif row["error"]:
                yield f"Its last attempt, number {row['attempt']}, failed: {reason_of(row['error'])}"
        case JobState.RUNNING:
            yield from _running(row, now)
        case JobState.SUCCEEDED:
            yield f"It succeeded{_took(row)}."
        case JobState.FAILED:
            yield f"It failed, after {plural(row['attempt'], 'attempt')}: {reason_of(row['error'])}"
        case JobState.CANCELED:
            before = row["started_at"] is None
            why = f": {reason_of(row['error'])}" if before and row["error"] else ""
            yield f"It was canceled{' before it began' if before else ''}{why}."
        case JobState.LOST:
            yield "It is lost: its worker fell silent in the last attempt, and nobody knows how far it got."
        case other:
            yield f"No worker will take it: its status, {other}, is not one of boxengine's."


def _queued(row: JobRow, holder: int | None, awaited: Sequence[Awaited], now: datetime) -> str:
    match row["waits"]:
        case Waits.NOTHING:
            return "It waits for an idle thread of a worker."
        case Waits.TIME:
            rest = row["available_at"] - now
            return f"It waits for its time, in {lasting(rest)}." if rest.total_seconds() > 0 else "Its time has come."
        case Waits.LOCK if holder is not None:
            return f"It waits for job {holder}, which holds its lock key."
        case Waits.JOBS if awaited:
            named = ", ".join(f"{each.id} ({each.status or 'deleted'})" for each in awaited[:NAMED])
            more = ", and others" if len(awaited) > NAMED else ""
            return f"It waits until {'this job has' if len(awaited) == 1 else 'these jobs have'} ended: {named}{more}."
        case _:
            return "It waits for another job."


def _running(row: JobRow, now: datetime) -> Iterator[str]:
    yield f"It runs, in attempt {row['attempt']} of {row['max_attempts']}, in the process {row['worker']}."
    if row["cancel_requested"]:
        yield "Somebody asked to cancel it. It stops when its handler checks job.cancelled."
    expires = row["lease_expires_at"]
    if expires is not None and expires < now:
        yield f"Its lease has been over for {lasting(now - expires)}: the worker fell silent. Another worker takes it over."
    elif row["heartbeat_at"] is not None:
        yield f"Its worker's last sign of life came {lasting(now - row['heartbeat_at'])} ago."


def _took(row: JobRow) -> str:
    if row["started_at"] is None or row["finished_at"] is None:
        return ""
    return f", {lasting(row['finished_at'] - row['started_at'])} after it began"
