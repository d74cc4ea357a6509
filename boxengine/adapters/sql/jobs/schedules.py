"""``Schedules`` over PostgreSQL and MariaDB: one row for each schedule, locked while its runs are created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, Row, insert, select, type_coerce, update
from sqlalchemy.exc import IntegrityError

from boxengine.adapters.sql.jobs.insert import SqlNewJobs
from boxengine.adapters.sql.jobs.models import schedule_table
from boxengine.adapters.sql.jobs.moments import clock_now
from boxengine.adapters.sql.jobs.rows import short
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.shape.columns import Moment
from boxengine.domain.jobs import JobBox
from boxengine.ports.jobs import NewJob
from boxengine.ports.schedules import Known


class _Other(Exception):
    """Another worker has met the schedule for the first time, at the same moment."""


class SqlSchedules:
    """Over the tables of a ``SqlJobs``."""

    def __init__(self, jobs: SqlJobs) -> None:
        self._jobs = jobs

    def fire(
        self,
        box: JobBox,
        name: str,
        rule: str,
        runs: Callable[[datetime, datetime], Sequence[NewJob]],
        *,
        grace: timedelta,
    ) -> datetime | None:
        try:
            with short(self._jobs.engine) as connection:
                return self._fire(connection, box, name, rule, runs, grace)
        except _Other:
            return None

    def known(self, box: JobBox) -> Known:
        schedules = schedule_table(self._jobs.rows(box).jobs)
        with short(self._jobs.engine) as connection:
            rows = connection.execute(select(schedules.c.name, schedules.c.handled_until))
            return Known(_now(connection), {row.name: row.handled_until for row in rows})

    def _fire(
        self,
        connection: Connection,
        box: JobBox,
        name: str,
        rule: str,
        runs: Callable[[datetime, datetime], Sequence[NewJob]],
        grace: timedelta,
    ) -> datetime:
        rows = self._jobs.rows(box)
        schedules = schedule_table(rows.jobs)
        mine = schedules.c.name == name
        look = select(schedules.c.rule, schedules.c.handled_until).where(mine)
        # Without a lock first: most looks find nothing to do, and a lock on a row that is not there is one on a gap on
        # MariaDB, over which two workers would deadlock.
        known, now = connection.execute(look).one_or_none(), _now(connection)
        if known is None:
            try:
                connection.execute(insert(schedules).values(name=name, rule=rule, handled_until=now))
            except IntegrityError as error:
                raise _Other from error
            return now
        if _goes_on(known, rule, now) and not runs(known.handled_until, now):
            return now
        known, now = connection.execute(look.with_for_update()).one(), _now(connection)
        # Workers with another rule may run beside this one: what they handled says nothing of this rule's runs, and a run that is
        # found twice is known by its key.
        since = known.handled_until if known.rule == rule else now - grace
        jobs = runs(since, now) if since <= now else ()
        if jobs:
            SqlNewJobs(box, self._jobs.model(box)).insert(connection, jobs)
        connection.execute(update(schedules).where(mine).values(rule=rule, handled_until=now))
        return now


def _goes_on(known: Row[str, datetime], rule: str, now: datetime) -> bool:
    """Whether it is the schedule that it was, and no clock was set back."""
    return bool(known.rule == rule and known.handled_until <= now)


def _now(connection: Connection) -> datetime:
    """The database's clock."""
    now: datetime = connection.execute(select(type_coerce(clock_now(), Moment))).scalar_one()
    return now
