"""How attempts ended: many of them in one statement, each under its fence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any, Protocol, assert_never

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    Float,
    Integer,
    Select,
    String,
    and_,
    bindparam,
    case,
    cast,
    column,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB

from boxengine.adapters.sql.jobs.moments import clock_now, later
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.domain.jobs import Canceled, EventKind, Failed, JobOutcome, JobState, Requeued, Succeeded, Waits

CANCELED = str(JobState.CANCELED)
QUEUED = str(JobState.QUEUED)
SUCCEEDED = str(JobState.SUCCEEDED)
_NOT_WRITTEN: Mapping[str, Any] = {"waits": 0, "pause": 0.0, "uncounted": 0, "result": None, "error": None}
"""The columns that most ends do not write."""
_GIVEN: Mapping[str, Any] = {"id": BigInteger(), "token": BigInteger(), "more": String()}
"""What PostgreSQL is given of each end. ``more`` is JSON, of all that a plain success has not; NULL for such a one.

Each array costs the driver as much as the whole JSON of an end does, and most ends need none."""


class Ends(Protocol):
    """Writes the ends of one box's attempts."""

    def write(self, connection: Connection, outcomes: Sequence[JobOutcome], *, waits: bool = False) -> set[int]:
        """Returns the ids of the jobs whose ends are written. Jobs that wait for their ``lock_key`` may be claimed now.

        Args:
            waits: whether it waits for rows that somebody has locked. Otherwise it leaves them out, or the ends of all other
                jobs would wait too.
        """


class TogetherEnds:
    """On PostgreSQL: one statement for the jobs and their journal, however many there are."""

    def __init__(self, rows: JobRows) -> None:
        self._rows = rows
        self._statement = _statement(rows, waits=False)
        self._waiting = _statement(rows, waits=True)

    def write(self, connection: Connection, outcomes: Sequence[JobOutcome], *, waits: bool = False) -> set[int]:
        ordered = sorted(outcomes, key=lambda each: each.job.id)
        arrays = {
            _given("id"): [each.job.id for each in ordered],
            _given("token"): [each.job.token for each in ordered],
            _given("more"): [_more(each) for each in ordered],
        }
        written = set(connection.scalars(self._waiting if waits else self._statement, arrays))
        # A statement of its own: it sees the jobs that were set aside before the locks were taken.
        self._rows.let_go(connection, keys_of(outcomes, written))
        return written


class StepwiseEnds:
    """Elsewhere: the rows are locked, and each kind of end is written with one statement."""

    def __init__(self, rows: JobRows) -> None:
        self._rows = rows

    def write(self, connection: Connection, outcomes: Sequence[JobOutcome], *, waits: bool = False) -> set[int]:
        rows, jobs = self._rows, self._rows.jobs.c
        query = rows.locked([each.job.held for each in outcomes], jobs.id, jobs.cancel_requested)
        if not waits:
            query = query.with_for_update(skip_locked=True)
        canceled = {job_id: bool(cancel) for job_id, cancel in connection.execute(query)}
        told = [_told(_as_asked(each, cancel=canceled[each.job.id])) for each in outcomes if each.job.id in canceled]
        kinds: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for each in told:
            kinds.setdefault((each["status"], each["waits"], each["pause"], each["uncounted"]), []).append(each)
        for alike in kinds.values():
            connection.execute(
                update(rows.jobs).where(jobs.id.in_([each["id"] for each in alike])).values(self._values(alike))
            )
        rows.let_go(connection, keys_of(outcomes, canceled))
        rows.tell(connection, [(each["id"], each["kind"], each["payload"]) for each in told])
        return set(canceled)

    def _values(self, alike: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        jobs, one = self._rows.jobs.c, alike[0]
        values: dict[str, Any] = {"status": one["status"], "holds": None, "lease_expires_at": None}
        if any(each["progress"] is not None for each in alike):
            values["progress"] = _by_id(jobs, "progress", [each for each in alike if each["progress"] is not None])
        if one["status"] == QUEUED:
            values |= {"waits": one["waits"], "available_at": later(one["pause"])}
            values["attempt"] = jobs.attempt - one["uncounted"]
        else:
            values["finished_at"] = clock_now()
        if one["status"] == SUCCEEDED:
            values["result"] = _by_id(jobs, "result", alike)
        if one["status"] != CANCELED:
            values["error"] = _by_id(jobs, "error", alike)
        return values


def ends_of(dialect_name: str, rows: JobRows) -> Ends:
    """The writer of ends for this database."""
    return TogetherEnds(rows) if dialect_name == "postgresql" else StepwiseEnds(rows)


def keys_of(outcomes: Sequence[JobOutcome], written: Any) -> set[str | None]:
    """The lock keys of the jobs that were written."""
    return {each.job.lock_key for each in outcomes if each.job.lock_key is not None and each.job.id in written}


# ── what is written ──────────────────────────────────────────────────────────────────────────────────


def _told(outcome: JobOutcome) -> dict[str, Any]:
    job, attempt = outcome.job, dict[str, Any](attempt=outcome.job.attempt)
    told: dict[str, Any] = {"id": job.id, **_NOT_WRITTEN, "progress": outcome.progress}
    match outcome.ending:
        case Succeeded(result=result):
            told |= {"status": SUCCEEDED, "result": result}
            kind, payload = EventKind.DONE, attempt
        case Requeued(pause=pause, error=error, counts=counts):
            seconds = pause.total_seconds()
            told |= {"status": QUEUED, "waits": int(Waits.TIME if seconds > 0 else Waits.NOTHING), "pause": seconds}
            told |= {"uncounted": int(not counts), "error": error}
            kind, payload = EventKind.REQUEUE, attempt | {"in": seconds, **_first_line(error)}
        case Failed(error=error):
            told |= {"status": str(JobState.FAILED), "error": error}
            kind, payload = EventKind.FAILED, attempt | {"error": "", **_first_line(error)}
        case Canceled():
            told |= {"status": CANCELED}
            kind, payload = EventKind.CANCELED, attempt
        case never:
            assert_never(never)
    return told | {"kind": str(kind), "payload": payload}


def _more(outcome: JobOutcome) -> str | None:
    match outcome:
        case JobOutcome(ending=Succeeded(result=None), progress=None):
            return None
    told = {name: value for name, value in _told(outcome).items() if value is not None}
    return json.dumps(told, ensure_ascii=False)


def _first_line(text: str | None) -> dict[str, str]:
    return {"error": text.splitlines()[0]} if text else {}


def _as_asked(outcome: JobOutcome, *, cancel: bool) -> JobOutcome:
    """A job that somebody wants canceled is not queued again."""
    if cancel and isinstance(outcome.ending, Requeued):
        return JobOutcome(outcome.job, Canceled(), outcome.progress)
    return outcome


def _by_id(jobs: Any, name: str, alike: Sequence[Mapping[str, Any]]) -> Any:
    values = {each["id"]: each[name] for each in alike}
    if all(value is None for value in values.values()):
        return None
    new = {job_id: literal(value, jobs[name].type) for job_id, value in values.items()}
    return case(new, value=jobs.id, else_=jobs[name])


# ── PostgreSQL's statement ───────────────────────────────────────────────────────────────────────────


def _given(name: str) -> str:
    """The parameter's name. With a column's, SQLAlchemy would take it for a value to be written."""
    return f"given_{name}"


def _statement(rows: JobRows, *, waits: bool) -> Select[Any]:
    """Locks the rows in the order of their ids, as heartbeats and claims do, so that no two of them wait for each other.

    Every plan looks up the primary key once for each end: PostgreSQL cannot see how long the arrays are, and takes them for
    short. A condition ``id = ANY(...)`` beside the join would be tried on each row, which makes 500 ends seven times as dear.
    """
    jobs = rows.jobs.c
    arrays = [select(bindparam(_given(name), type_=ARRAY(kind))).scalar_subquery() for name, kind in _GIVEN.items()]
    given = func.unnest(*arrays).table_valued(*starmap(column, _GIVEN.items())).render_derived(name="given")
    told = select(given.c.id, given.c.token, cast(given.c.more, JSONB).label("more")).cte("told")
    more = told.c.more
    held = (
        select(
            told.c.id,
            jobs.attempt,
            func.coalesce(more["status"].astext, SUCCEEDED).label("status"),
            cast(more["waits"].astext, Integer).label("waits"),
            cast(more["pause"].astext, Float).label("pause"),
            cast(more["uncounted"].astext, Integer).label("uncounted"),
            more["result"].label("result"),
            more["error"].astext.label("error"),
            more["progress"].label("progress"),
            func.coalesce(more["kind"].astext, str(EventKind.DONE)).label("kind"),
            more["payload"].label("payload"),
        )
        .select_from(rows.jobs)
        .join(told, and_(told.c.id == jobs.id, told.c.token == jobs.token))
        .where(rows.is_in(JobState.RUNNING))
        .order_by(jobs.id)
        .with_for_update(of=rows.jobs, skip_locked=not waits)
        .cte("held")
    )
    requeued = held.c.status == QUEUED
    canceled = and_(requeued, jobs.cancel_requested)
    queued = and_(requeued, jobs.cancel_requested.is_(False))
    ended = (
        update(rows.jobs)
        .where(jobs.id == held.c.id)
        .values(
            status=case((canceled, CANCELED), else_=held.c.status),
            waits=case((queued, held.c.waits), else_=jobs.waits),
            available_at=case((queued, later(held.c.pause)), else_=jobs.available_at),
            attempt=case((queued, jobs.attempt - held.c.uncounted), else_=jobs.attempt),
            finished_at=case((queued, jobs.finished_at), else_=clock_now()),
            result=case((held.c.status == SUCCEEDED, held.c.result), else_=jobs.result),
            error=case((or_(canceled, held.c.status == CANCELED), jobs.error), else_=held.c.error),
            progress=func.coalesce(held.c.progress, jobs.progress),
            holds=None,
            lease_expires_at=None,
        )
        .returning(jobs.id, canceled.label("canceled"), held.c.attempt, held.c.kind, held.c.payload)
        .cte("ended")
    )
    plain = func.jsonb_build_object("attempt", ended.c.attempt)
    payload = case((ended.c.canceled, plain), else_=func.coalesce(ended.c.payload, plain))
    kind = case((ended.c.canceled, str(EventKind.CANCELED)), else_=ended.c.kind)
    # The column's own default is the beginning of the transaction, which a handler may have kept open for hours.
    events = insert(rows.journal).from_select(
        ["job_id", "ts", "kind", "payload"], select(ended.c.id, clock_now(), kind, payload).order_by(ended.c.id)
    )
    return select(ended.c.id).add_cte(events.cte("events"))
