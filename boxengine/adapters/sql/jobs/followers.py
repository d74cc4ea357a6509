"""Jobs that wait for other jobs.

Nothing is written when a predecessor ends, so jobs without followers cost nothing, and no end can forget a follower. Instead
a look for due jobs (``release``) finds pairs that are over, wherever the workers that ended the predecessors are by then. It
reads the jobs that finished last, where nearly all of them are, and then one window after the other of all pairs that wait.
So a follower whose creation commits after its predecessor has ended is found too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, case, exists, insert, select, tuple_, update

from boxengine.adapters.sql.jobs.moments import ago, clock_now
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.adapters.sql.shape.now import utc_now
from boxengine.domain.jobs import FINAL, AfterFailure, EventKind, JobState, Waits, end_of_waiting, why_canceled
from boxengine.errors import InvalidItem
from boxengine.ports.jobs import NewJob

JUST_NOW = 60
"""Seconds since which a job has finished whose followers every look finds, of at most so many jobs:"""
LATEST = 500
AT_ONCE = 1000
"""Predecessors that one statement looks up: no driver sends more than 65,535 parameters, and asyncpg half of them."""
WINDOW = 500
"""Waiting pairs that one look reads besides."""


# ── creating ─────────────────────────────────────────────────────────────────────────────────────────


class Predecessors:
    """The jobs that new jobs wait for, as the caller's transaction sees them."""

    def __init__(self, connection: Connection, rows: JobRows, jobs: Sequence[NewJob]) -> None:
        """Raises:
        InvalidItem: one of them is not there.
        """
        self._connection, self._rows = connection, rows
        self._states = _states(connection, rows, {each for job in jobs for each in job.after})
        for job in jobs:
            unknown = next((each for each in job.after if each not in self._states), None)
            if unknown is not None:
                raise InvalidItem(
                    f"box {rows.box.name}: after: there is no job {unknown}, or it was created in another transaction "
                    "that this one does not see"
                )

    def block(self, job: NewJob) -> bool:
        """Whether the job must wait."""
        return any(map(self._waits(job), job.after))

    def write(self, jobs: Sequence[tuple[int, NewJob]]) -> None:
        """Remembers what these new jobs wait for."""
        pairs = [
            {
                "job_id": job_id,
                "after_id": each,
                "waiting": int(self._waits(job)(each)),
                "after_failure": str(job.after_failure),
            }
            for job_id, job in jobs
            for each in job.after
        ]
        if pairs:
            self._connection.execute(insert(self._rows.after), pairs)

    def _waits(self, job: NewJob) -> Any:
        # A job behind one that has failed waits too, for the next look, which cancels it like all others.
        return lambda each: end_of_waiting(self._states[each], job.after_failure) is not True


def _states(connection: Connection, rows: JobRows, ids: Collection[int]) -> Mapping[int, str]:
    jobs = rows.jobs.c
    left, states = sorted(ids), dict[int, str]()
    for start in range(0, len(left), AT_ONCE):
        some = jobs.id.in_(left[start : start + AT_ONCE])
        found = connection.execute(select(jobs.id, jobs.status).where(some))
        states.update((row.id, row.status) for row in found)
    return states


# ── letting go ───────────────────────────────────────────────────────────────────────────────────────


def some_wait(rows: JobRows) -> ColumnElement[bool]:
    """Whether any job waits for another one."""
    return exists().where(rows.after.c.waiting == 1)


class Released(NamedTuple):
    """The result of a look."""

    number: int
    """Followers that were let go or canceled. A canceled one may have followers of its own."""
    seen_to: int
    """The follower after which the next look goes on."""


def waiting_jobs(rows: JobRows) -> Select[Any]:
    """The followers that wait. Read from the pairs: the jobs' own table has no index for them."""
    return select(rows.after.c.job_id).where(rows.after.c.waiting == 1).distinct()


def release(connection: Connection, rows: JobRows, seen_to: int) -> Released:
    """Ends the waiting of followers whose predecessors have ended."""
    jobs = rows.jobs.c
    latest = select(jobs.id).where(jobs.finished_at > ago(JUST_NOW)).order_by(jobs.finished_at.desc())
    recent = latest.limit(LATEST).subquery()
    over = _over(connection, rows, rows.after.c.after_id.in_(select(recent.c.id)))
    waiting = select(rows.after.c.job_id).where(rows.after.c.waiting == 1, rows.after.c.job_id > seen_to)
    ids = list(connection.scalars(waiting.order_by(rows.after.c.job_id).limit(WINDOW)))
    if ids:
        over += _over(connection, rows, rows.after.c.job_id.in_(sorted(set(ids))))
    return Released(_settle(connection, rows, over), ids[-1] if len(ids) == WINDOW else 0)


def forget(connection: Connection, rows: JobRows, old: Sequence[int]) -> Sequence[int]:
    """Returns the jobs among these that nobody waits for any more. Deletes the record of what they waited for."""
    after = rows.after
    _settle(connection, rows, _over(connection, rows, after.c.after_id.in_(old)))
    still = set(connection.scalars(select(after.c.after_id).where(after.c.waiting == 1, after.c.after_id.in_(old))))
    gone = [each for each in old if each not in still]
    if gone:
        connection.execute(after.delete().where(after.c.job_id.in_(gone)))
    return gone


def wait_again(connection: Connection, rows: JobRows, ids: Sequence[int]) -> None:
    """Makes finished jobs that were queued again by hand wait for their predecessors that have not ended."""
    after, jobs = rows.after, rows.jobs.c
    open_pairs = select(after.c.job_id, after.c.after_id).join(rows.jobs, jobs.id == after.c.after_id)
    found = connection.execute(
        open_pairs.where(after.c.job_id.in_(ids), rows.is_in(JobState.QUEUED, JobState.RUNNING))
    ).all()
    if found:
        connection.execute(update(after).where(_these(rows, found)).values(waiting=1))
        followers = sorted({row.job_id for row in found})
        connection.execute(update(rows.jobs).where(jobs.id.in_(followers)).values(waits=int(Waits.JOBS)))


def canceled(connection: Connection, rows: JobRows, ids: Sequence[int]) -> None:
    """These wait for nobody any more."""
    if ids:
        connection.execute(update(rows.after).where(rows.after.c.job_id.in_(ids)).values(waiting=0))


def _over(connection: Connection, rows: JobRows, which: ColumnElement[bool]) -> list[Row[Any]]:
    """Waiting pairs whose predecessor has ended, or is gone."""
    after, jobs = rows.after.c, rows.jobs.c
    pairs = select(after.job_id, after.after_id, after.after_failure, jobs.status)
    pairs = pairs.select_from(rows.after.outerjoin(rows.jobs, jobs.id == after.after_id))
    ended = jobs.id.is_(None) | rows.is_in(*FINAL)
    return list(connection.execute(pairs.where(after.waiting == 1, which, ended).order_by(after.job_id).limit(WINDOW)))


def _settle(connection: Connection, rows: JobRows, over: Sequence[Row[Any]]) -> int:
    """Returns how many followers were let go or canceled. Followers that another worker is looking at are left to it."""
    if not over:
        return 0
    jobs, after = rows.jobs.c, rows.after
    ids = sorted({pair.job_id for pair in over})
    waiting = select(jobs.id).where(jobs.id.in_(ids), rows.queued(Waits.JOBS))
    mine = set(connection.scalars(waiting.order_by(jobs.id).with_for_update(skip_locked=True)))
    if len(mine) < len(ids):
        _drop_deleted(connection, rows, [each for each in ids if each not in mine])
    over = [pair for pair in over if pair.job_id in mine]
    if not over:
        return 0
    failed = {
        pair.job_id: pair for pair in over if end_of_waiting(pair.status, AfterFailure(pair.after_failure)) is None
    }
    connection.execute(update(after).where(_these(rows, over)).values(waiting=0))
    _cancel(connection, rows, failed)
    # Only the worker that has locked the follower's row may check whether this was the last pair, so the later of two workers
    # sees it.
    hopeful = sorted(mine - failed.keys())
    held = set(connection.scalars(select(after.c.job_id).where(after.c.waiting == 1, after.c.job_id.in_(hopeful))))
    free = [each for each in hopeful if each not in held]
    _let_go(connection, rows, free)
    return len(failed) + len(free)


def _drop_deleted(connection: Connection, rows: JobRows, ids: Sequence[int]) -> None:
    """Forgets what followers waited for that somebody has deleted by hand. Their predecessors would be kept for ever."""
    jobs = rows.jobs.c
    there = set(connection.scalars(select(jobs.id).where(jobs.id.in_(ids))))
    gone = [each for each in ids if each not in there]
    if gone:
        connection.execute(rows.after.delete().where(rows.after.c.job_id.in_(gone)))


def _cancel(connection: Connection, rows: JobRows, failed: Mapping[int, Row[Any]]) -> None:
    if not failed:
        return
    jobs = rows.jobs
    why = {job_id: why_canceled(pair.after_id, pair.status) for job_id, pair in failed.items()}
    values = {"status": str(JobState.CANCELED), "finished_at": clock_now(), "error": case(why, value=jobs.c.id)}
    connection.execute(update(jobs).where(jobs.c.id.in_(failed)).values(values))
    canceled(connection, rows, list(failed))
    rows.tell(connection, [(job_id, EventKind.CANCELED, {"reason": reason}) for job_id, reason in why.items()])


def _let_go(connection: Connection, rows: JobRows, ids: Sequence[int]) -> None:
    if not ids:
        return
    jobs = rows.jobs
    later = jobs.c.available_at > utc_now()
    # From now on it could begin: its lag counts from here.
    values = {
        "waits": case((later, int(Waits.TIME)), else_=int(Waits.NOTHING)),
        "available_at": case((later, jobs.c.available_at), else_=utc_now()),
    }
    connection.execute(update(jobs).where(jobs.c.id.in_(ids)).values(values))
    rows.tell(connection, [(job_id, EventKind.RELEASED, None) for job_id in ids])


def _these(rows: JobRows, pairs: Sequence[Any]) -> ColumnElement[bool]:
    after = rows.after.c
    return and_(tuple_(after.job_id, after.after_id).in_([(pair.job_id, pair.after_id) for pair in pairs]))


# ── looking ──────────────────────────────────────────────────────────────────────────────────────────


def awaited(
    connection: Connection, rows: JobRows, job_id: int, *, limit: int | None = None, only_waiting: bool = False
) -> list[dict[str, Any]]:
    """The jobs that a job was created after, the lowest id first: ``id``, ``status``, and whether it still ``waits`` for each."""
    after, jobs = rows.after.c, rows.jobs.c
    query = select(after.after_id.label("id"), jobs.status, after.waiting)
    query = query.select_from(rows.after.outerjoin(rows.jobs, jobs.id == after.after_id))
    query = query.where(after.job_id == job_id, *([after.waiting == 1] if only_waiting else []))
    found = connection.execute(query.order_by(after.after_id).limit(limit))
    return [{"id": row.id, "status": row.status, "waits": bool(row.waiting)} for row in found]
