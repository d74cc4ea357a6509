"""``JobInspector``: finds jobs for people, by index where there is one, otherwise window by window of ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, false, func, select

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.jobs import followers
from boxengine.adapters.sql.jobs.moments import seconds_until
from boxengine.adapters.sql.jobs.rows import JobRows, latest_events
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.looking.moments import Probes, span_of
from boxengine.adapters.sql.looking.windows import Span
from boxengine.adapters.sql.shape.tables import quoted
from boxengine.domain.jobs import JobBox, JobState, Waits
from boxengine.ports.people.census import Count, Precision
from boxengine.ports.people.inspection import Towards
from boxengine.ports.people.jobs import Awaited, JobCounts, JobRow, JobSearch, JobsFound

WINDOW = 5_000
"""Ids that one step of a search reads. A search by time also finds a job whose id is up to this far from others of its time."""
NEXT = 1_000
"""Ready jobs, those to be claimed next, among which the oldest is looked for."""
SMALL = 200_000
"""A table whose ids span no more than this is small."""
ALL = 2**62
"""More jobs than any table has."""
INDEXED = frozenset({JobState.RUNNING, JobState.FAILED, JobState.CANCELED, JobState.LOST})
"""States whose jobs an index lists by id."""
ENDED = (JobState.FAILED, JobState.CANCELED, JobState.LOST)
_LARGE = ("args", "checkpoint", "result")


class SqlJobInspector:
    """Over the tables of a ``SqlJobs``."""

    def __init__(self, jobs: SqlJobs, *, window: int = WINDOW) -> None:
        self._jobs = jobs
        self._window = window

    def get(self, box: JobBox, job_id: int) -> JobRow | None:
        rows = self._jobs.rows(box)
        with self._look() as connection:
            found = connection.execute(select(rows.jobs).where(rows.jobs.c.id == job_id)).mappings().one_or_none()
        return None if found is None else dict(found)

    def journal(self, box: JobBox, job_id: int, *, limit: int) -> Sequence[JobRow]:
        with self._look() as connection:
            return latest_events(connection, self._jobs.rows(box), job_id, limit)

    def awaited(self, box: JobBox, job_id: int, *, limit: int) -> Sequence[Awaited]:
        with self._look() as connection:
            found = followers.awaited(connection, self._jobs.rows(box), job_id, limit=limit, only_waiting=True)
        return [Awaited(each["id"], each["status"]) for each in found]

    def find(
        self,
        box: JobBox,
        which: JobSearch,
        *,
        start: int | None,
        towards: Towards,
        limit: int,
        enough: Callable[[], bool] = lambda: True,
    ) -> JobsFound:
        with self._look() as connection:
            look = _Look(self._jobs.rows(box), connection, which, untidy=self._window)
            if look.is_by_index:
                found = look.by_index(start, towards, limit + 1)
                searched_to = found[limit - 1]["id"] if len(found) > limit else None
            else:
                found, searched_to = self._search(look, start, towards, limit, enough)
        return JobsFound(found[:limit][:: 1 if towards is Towards.OLDER else -1], searched_to)

    def count(self, box: JobBox, which: JobSearch, *, limit: int) -> Count:
        with self._look() as connection:
            look = _Look(self._jobs.rows(box), connection, which, untidy=self._window)
            if look.is_by_index:
                return _limited(sum(look.number(part, limit + 1) for part in look.indexed()), limit)
            window = look.window(None, Towards.OLDER, self._window)
            number = look.number_within(window)
        return Count(number, Precision.EXACT if window.is_last else Precision.AT_LEAST)

    def counts(self, box: JobBox, *, limit: int | None) -> JobCounts:
        rows = self._jobs.rows(box)
        exact, limit = limit is None, ALL if limit is None else limit
        with self._look() as connection:
            look = _Look(rows, connection, JobSearch(), untidy=self._window)
            ready = look.number(rows.queued(Waits.NOTHING), limit + 1) + look.number(rows.due(), limit + 1)
            delayed = look.number(rows.delayed(), limit + 1)
            blocked = look.number(rows.queued(Waits.LOCK), limit + 1) + look.followers(limit + 1)
            states = (JobState.RUNNING, *ENDED)
            ended = {state: _limited(look.number(rows.is_in(state), limit + 1), limit) for state in states}
            ended[JobState.SUCCEEDED] = look.succeeded(exact=exact)
            return JobCounts(
                ready=_limited(ready, limit),
                delayed=_limited(delayed, limit),
                blocked=_limited(blocked, limit),
                taken=ended.pop(JobState.RUNNING),
                ended=ended,
                waits=look.oldest_wait(),
            )

    def _search(
        self, look: _Look, start: int | None, towards: Towards, limit: int, enough: Callable[[], bool]
    ) -> tuple[list[JobRow], int | None]:
        found: list[JobRow] = []
        size = limit + 1 if look.means_all else self._window
        while True:
            window = look.window(start, towards, size)
            found += look.within(window, limit + 1 - len(found))
            if len(found) > limit:
                return found, found[limit - 1]["id"]
            if window.is_last:
                return found, None
            if len(found) == limit or enough():
                return found, window.last
            start = window.last

    @contextmanager
    def _look(self) -> Iterator[Connection]:
        with translated(self._jobs.engine), self._jobs.engine.connect() as connection:
            yield connection


class Window(NamedTuple):
    """A run of jobs by id, beyond ``start``."""

    start: int | None
    towards: Towards
    last: int | None
    """The id that lies farthest; None: there is no job."""
    is_last: bool
    """Whether the table ends there."""


class _Look:
    """The statements of one question."""

    def __init__(self, rows: JobRows, connection: Connection, which: JobSearch, *, untidy: int) -> None:
        self._rows = rows
        self._untidy = untidy
        self._jobs = rows.jobs.c
        self._connection = connection
        self._which = which

    @property
    def is_by_index(self) -> bool:
        """Whether an index leads to the jobs that are meant."""
        which = self._which
        if which.ids or which.idempotency_key is not None or which.states == {JobState.RUNNING}:
            return True
        tested = which.task or which.lock_key or which.error
        return bool(which.states) and which.states <= INDEXED and not tested

    @property
    def means_all(self) -> bool:
        """Whether every job is meant."""
        return self._which == JobSearch()

    def indexed(self) -> list[ColumnElement[bool]]:
        """Conditions that an index serves, and that together mean all jobs of the search."""
        if self._which.ids:
            return [self._jobs.id.in_(self._which.ids)]
        if self._which.idempotency_key is not None:
            return [self._jobs.idempotency_key == self._which.idempotency_key]
        return [self._rows.is_in(state) for state in sorted(self._which.states)]

    def by_index(self, start: int | None, towards: Towards, limit: int) -> list[JobRow]:
        """The nearest of them first."""
        found: list[JobRow] = []
        for part in self.indexed():
            query = self._filtered(select(*self._columns).where(part))
            found += self._rows_of(_beyond(query, self._jobs.id, start, towards).limit(limit))
        return sorted(found, key=lambda row: row["id"], reverse=towards is Towards.OLDER)[:limit]

    def number(self, part: ColumnElement[bool], limit: int) -> int:
        """How many jobs; at most so many are counted."""
        few = self._filtered(select(self._jobs.id).where(part)).limit(limit).subquery()
        return self._connection.scalar(select(func.count()).select_from(few)) or 0

    def followers(self, limit: int) -> int:
        """How many jobs wait for their predecessors; at most so many are counted."""
        few = followers.waiting_jobs(self._rows).limit(limit).subquery()
        return self._connection.scalar(select(func.count()).select_from(few)) or 0

    def window(self, start: int | None, towards: Towards, size: int) -> Window:
        """The next so many jobs."""
        some = select(self._jobs.id).where(*self._within_span())
        ids = _beyond(some, self._jobs.id, start, towards).limit(size).subquery()
        ends = func.min(ids.c.id) if towards is Towards.OLDER else func.max(ids.c.id)
        number, last = self._connection.execute(select(func.count(), ends).select_from(ids)).one()
        return Window(start, towards, last, is_last=number < size)

    def within(self, window: Window, limit: int) -> list[JobRow]:
        """The nearest jobs of the window that are meant."""
        query = self._filtered(select(*self._columns)).where(self._inside(window))
        return self._rows_of(_beyond(query, self._jobs.id, window.start, window.towards).limit(limit))

    def number_within(self, window: Window) -> int:
        """How many jobs of the window are meant."""
        return self._connection.scalar(self._filtered(select(func.count()).where(self._inside(window)))) or 0

    def _inside(self, window: Window) -> ColumnElement[bool]:
        if window.last is None:
            return false()
        return self._jobs.id >= window.last if window.towards is Towards.OLDER else self._jobs.id <= window.last

    def succeeded(self, *, exact: bool) -> Count:
        """Exactly in a small table, else as many as the planner expects."""
        span = self._connection.scalar(select(func.max(self._jobs.id) - func.min(self._jobs.id) + 1)) or 0
        which = select(self._jobs.id).where(self._rows.is_in(JobState.SUCCEEDED))
        if exact or span <= SMALL:
            return Count(self._connection.scalar(select(func.count()).select_from(which.subquery())) or 0)
        text = str(which.compile(self._connection))
        if self._connection.dialect.name == "postgresql":
            (plan,) = self._connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {text}").one()
            expected = plan[0]["Plan"]["Plan Rows"]
        else:
            expected = self._connection.exec_driver_sql(f"EXPLAIN {text}").mappings().one()["rows"]
        return Count(int(expected), Precision.ABOUT)

    def oldest_wait(self) -> timedelta | None:
        """The longest wait among the jobs that will be claimed next, and those whose time has come since."""
        ready = select(self._jobs.available_at).where(self._rows.queued(Waits.NOTHING))
        some = ready.order_by(self._jobs.priority, self._jobs.id).limit(NEXT).subquery()
        due = (
            select(self._jobs.available_at)
            .where(self._rows.due())
            .order_by(self._jobs.available_at)
            .limit(1)
            .subquery()
        )
        waits = [
            -float(seconds)
            for first in (some, due)
            if (seconds := self._connection.scalar(select(seconds_until(func.min(first.c.available_at))))) is not None
        ]
        return timedelta(seconds=max(0.0, *waits)) if waits else None

    @property
    def _columns(self) -> list[ColumnElement[Any]]:
        return [column for column in self._jobs if column.name not in _LARGE]

    def _rows_of(self, query: Select[Any]) -> list[JobRow]:
        return [dict(row) for row in self._connection.execute(query).mappings()]

    def _filtered(self, query: Select[Any]) -> Select[Any]:
        jobs, which = self._jobs, self._which
        if which.states:
            query = query.where(self._rows.is_in(*sorted(which.states)))
        if which.task is not None:
            query = query.where(jobs.task == which.task)
        if which.lock_key is not None:
            query = query.where(jobs.lock_key == which.lock_key)
        if which.error is not None:
            query = query.where(jobs.error.contains(which.error, autoescape=True))
        if which.idempotency_key is not None:
            query = query.where(jobs.idempotency_key == which.idempotency_key)
        if which.created_from is not None:
            query = query.where(jobs.created_at >= self._moment(which.created_from))
        if which.created_before is not None:
            query = query.where(jobs.created_at < self._moment(which.created_before))
        return query.where(*self._within_span())

    def _within_span(self) -> list[ColumnElement[bool]]:
        """Conditions on the ids of the search's period, which spare the rest of the table."""
        if self._which.created_from is None and self._which.created_before is None:
            return []
        return [self._jobs.id > self._span.low, self._jobs.id < self._span.high]

    @cached_property
    def _span(self) -> Span:
        jobs = self._rows.jobs
        name = quoted(self._connection.dialect, jobs.schema or "", jobs.name).replace(":", "\\:")
        which = self._which
        return span_of(self._connection, Probes(name), which.created_from, which.created_before, untidy=self._untidy)

    def _moment(self, moment: datetime) -> datetime:
        """As the database compares it: MySQL's columns have no zone and hold UTC."""
        postgresql = self._connection.dialect.name == "postgresql"
        return moment if postgresql else moment.astimezone(UTC).replace(tzinfo=None)


def _beyond(query: Select[Any], ids: ColumnElement[int], start: int | None, towards: Towards) -> Select[Any]:
    """Limits the query to ids on one side of ``start``, the nearest first."""
    if towards is Towards.OLDER:
        return (query if start is None else query.where(ids < start)).order_by(ids.desc())
    return (query if start is None else query.where(ids > start)).order_by(ids)


def _limited(number: int, limit: int) -> Count:
    return Count(limit, Precision.AT_LEAST) if number > limit else Count(number)
