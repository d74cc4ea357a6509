"""The parts that the statements over a table of jobs share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    MetaData,
    Select,
    Table,
    and_,
    insert,
    literal_column,
    select,
    tuple_,
    update,
)

from boxengine.adapters.sql.connecting.engine import limit_lock_wait
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.jobs.models import after_table, job_table, journal_table
from boxengine.adapters.sql.jobs.moments import ago
from boxengine.adapters.sql.shape.now import utc_now
from boxengine.domain.jobs import EventKind, Held, JobBox, JobState, Waits

SILENCE = 10
"""Seconds. A worker that is suspended in the middle of a short transaction keeps its locks for no longer."""
Events = Iterable[tuple[int, EventKind, Mapping[str, Any] | None]]


class JobRows:
    """The tables of one box."""

    def __init__(self, box: JobBox, model: type | None = None) -> None:
        self.box = box
        self.jobs: Table = job_table(box, MetaData()) if model is None else model.__table__  # type: ignore[attr-defined]
        self.journal = journal_table(self.jobs)
        self.after = after_table(self.jobs)

    # ── conditions ───────────────────────────────────────────────────────────────────────────────────

    def is_in(self, *states: JobState) -> ColumnElement[bool]:
        """Written out, not bound: a partial index serves a plan only where the plan knows the state."""
        status = self.jobs.c.status
        written: list[ColumnElement[Any]] = [literal_column(f"'{state}'") for state in states]
        return status == written[0] if len(written) == 1 else status.in_(written)

    def queued(self, waits: Waits) -> ColumnElement[bool]:
        return and_(self.is_in(JobState.QUEUED), self.jobs.c.waits == literal_column(str(int(waits))))

    def due(self) -> ColumnElement[bool]:
        """Whether the job's time has come: it is ready, even while no worker is there to say so."""
        return and_(self.queued(Waits.TIME), self.jobs.c.available_at <= utc_now())

    def delayed(self) -> ColumnElement[bool]:
        return and_(self.queued(Waits.TIME), self.jobs.c.available_at > utc_now())

    def held(self, held: Sequence[Held]) -> ColumnElement[bool]:
        """The fence: running, under these tokens."""
        columns = self.jobs.c
        pairs = [(each.id, each.token) for each in held]
        return and_(self.is_in(JobState.RUNNING), tuple_(columns.id, columns.token).in_(pairs))

    # ── locks ────────────────────────────────────────────────────────────────────────────────────────

    def locked(self, held: Sequence[Held], *columns: ColumnElement[Any]) -> Select[Any]:
        """These columns of the jobs that are still held, and their locks, in the order of their ids."""
        return self.by_id(select(*columns).where(self.held(held)).order_by(self.jobs.c.id)).with_for_update()

    def by_id(self, query: Select[Any]) -> Select[Any]:
        """Has MySQL and MariaDB find the rows by their ids.

        By another index they would lock its entry, and then the row. A transaction that changes an indexed column of a row it
        has locked takes the same two locks in the other order, and the server ends one of the two for the deadlock.
        """
        for dialect in ("mysql", "mariadb"):
            query = query.with_hint(self.jobs, "FORCE INDEX (PRIMARY)", dialect)
        return query

    # ── steps of several transactions ────────────────────────────────────────────────────────────────

    def tell(self, connection: Connection, events: Events) -> None:
        """Writes into the journal."""
        rows = [{"job_id": job_id, "kind": str(kind), "payload": payload} for job_id, kind, payload in events]
        if rows:
            connection.execute(insert(self.journal), rows)

    def let_go(self, connection: Connection, keys: Collection[str | None]) -> None:
        """Lets the first job that waits for each key be claimed. To be called after the key's holder has changed.

        Beside the most urgent one it lets one go that has waited for longer than the aging: a claim by age may choose it. The
        other is set aside again.
        """
        jobs, aging = self.jobs, self.box.aging
        for key in sorted({key for key in keys if key is not None}):
            waiting = select(jobs.c.id).where(self.queued(Waits.LOCK), jobs.c.lock_key == key)
            firsts = [waiting.order_by(jobs.c.priority, jobs.c.id)]
            if aging is not None:
                aged = waiting.where(jobs.c.available_at < ago(aging.total_seconds()))
                firsts.append(aged.order_by(jobs.c.available_at, jobs.c.id))
            found = {connection.scalar(first.limit(1).with_for_update(skip_locked=True)) for first in firsts}
            ids = sorted(each for each in found if each is not None)
            if ids:
                connection.execute(update(jobs).where(jobs.c.id.in_(ids)).values(waits=int(Waits.NOTHING)))


def latest_events(connection: Connection, rows: JobRows, job_id: int, limit: int) -> list[dict[str, Any]]:
    """The latest entries of a job's journal, at most so many, in order."""
    journal = rows.journal.c
    told = select(journal.ts, journal.kind, journal.payload).where(journal.job_id == job_id)
    latest = connection.execute(told.order_by(journal.id.desc()).limit(limit)).mappings()
    return [dict(event) for event in latest][::-1]


@contextmanager
def short(engine: Engine) -> Iterator[Connection]:
    """A transaction that must not stay open, whatever happens to this process, nor wait for locks for long."""
    with translated(engine), engine.begin() as connection:
        limit_silence(connection, timedelta(seconds=SILENCE))
        limit_lock_wait(connection)
        yield connection


@contextmanager
def single(engine: Engine) -> Iterator[Connection]:
    """A connection for one statement, which is a transaction of its own where that costs the database nothing.

    Nobody can be suspended between it and its commit, so that no limit is needed.
    """
    if engine.dialect.name != "postgresql":
        with short(engine) as connection:
            yield connection
        return
    with translated(engine), engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


def limit_silence(connection: Connection, span: timedelta) -> None:
    """The server ends the transaction when the client says nothing for so long; zero: it does not."""
    dialect, seconds = connection.dialect, span.total_seconds()
    if dialect.name == "postgresql":
        # SET LOCAL: behind a pooler the connection is somebody else's in a moment.
        connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = {int(seconds * 1000)}")
    elif getattr(dialect, "is_mariadb", False):
        connection.exec_driver_sql(f"SET SESSION idle_transaction_timeout = {int(seconds)}")
