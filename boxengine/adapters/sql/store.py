"""The store over SQLAlchemy's pool and the driver's own cursors.

SQLAlchemy keeps the connections, knows the dialects and gives users their ``Session``; the statements of the hot
path are hand-written and run on the driver's cursor, which spares their compilation and result objects.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from itertools import repeat
from operator import add, itemgetter

from sqlalchemy import Connection, Engine
from sqlalchemy.orm import Session

from boxengine.adapters.sql.dialects.base import ROW_FIELDS, BoxStatements, Cursor, Row, Taken
from boxengine.adapters.sql.dialects.registry import cursor_of, statements_for
from boxengine.adapters.sql.errors import connection_lost, translated
from boxengine.adapters.sql.tables import BoxTable, reflect
from boxengine.domain.box import Box
from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Settlement
from boxengine.ports import Outlook, PendingRow

_BUCKET = itemgetter(Item._fields.index("bucket"))
"""Of a row as of an item, which begins with the row's fields."""


class SqlStore:
    """``Store`` and ``HistoryStore`` over one database, and for polling over its replica where there is one."""

    def __init__(
        self,
        engine: Engine,
        *,
        replica: Engine | None = None,
        idle_timeout: timedelta = timedelta(seconds=180),
    ) -> None:
        """Connects to nothing yet.

        Args:
            engine: the database that holds the boxes' tables.
            replica: where polls read; the primary if none.
            idle_timeout: after which the database ends a claim whose worker has fallen silent within it.
        """
        self.engine = engine
        self._replica = replica or engine
        self._idle_timeout = idle_timeout
        self._boxes: dict[str, BoxStatements] = {}
        self._tables: dict[str, BoxTable] = {}
        self._lock = threading.Lock()

    # ── Store ────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, box: Box, buckets: Sequence[int], limit: int, *, regular_only: bool = False) -> list[PendingRow]:
        share = max(1, limit // max(1, len(buckets)))
        with self._cursor(self._replica) as cursor:
            rows = self._statements(box).poll(cursor, buckets, share, regular_only=regular_only)
        rows.sort()
        return rows

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        with self._cursor(self._replica) as cursor:
            found = self._statements(box).outlook(cursor, buckets)
        due = [bucket for bucket, _ in found if bucket is not None]
        next_in = [timedelta(seconds=seconds) for bucket, seconds in found if bucket is None]
        return Outlook(due, next_in[0] if next_in else None)

    @contextmanager
    def claim(
        self, box: Box, buckets: Mapping[int, int], limit: int, *, only_outcomes: bool = False
    ) -> Iterator[SqlClaim]:
        statements = self._statements(box)
        with (
            translated(self.engine),
            _connected(self.engine) as connection,
            closing(cursor_of(connection)) as cursor,
        ):
            transaction = _Transaction(connection, cursor, statements)
            try:
                claim = SqlClaim.take(transaction, box, buckets, limit, only_outcomes=only_outcomes)
                yield claim
                if not claim.items:
                    # Nothing is there to be undone, and a rollback would cost the driver all its prepared statements.
                    transaction.commit()
            finally:
                transaction.end()

    def ping(self) -> None:
        with self._cursor(self.engine) as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()

    # ── HistoryStore ─────────────────────────────────────────────────────────────────────────────────

    def counts(self, box: Box) -> Mapping[int, int]:
        with self._cursor(self.engine) as cursor:
            cursor.execute(f"SELECT status, count(*) FROM {self.table(box).name} GROUP BY status")
            return {int(status): int(count) for status, count in cursor.fetchall()}

    def oldest_pending(self, box: Box) -> datetime | None:
        with self._cursor(self._replica) as cursor:
            return self._statements(box).oldest_pending(cursor)

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        with self._cursor(self._replica) as cursor:
            return self._statements(box).oldest(cursor, statuses)

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        finished = [status for status in statuses if status != Status.PENDING]
        with self._cursor(self.engine) as cursor:
            deleted = self._statements(box).delete(cursor, finished, created_from, created_before, limit)
            cursor.connection.commit()
            return deleted

    # ── tables ───────────────────────────────────────────────────────────────────────────────────────

    def table(self, box: Box) -> BoxTable:
        """What the box's table looks like; looked up once.

        Raises:
            SchemaMismatch: the table is missing or cannot serve as a box.
        """
        known = self._tables.get(box.name)
        if known is None:
            with self._lock, translated(self.engine), self.engine.connect() as connection:
                known = self._tables.setdefault(box.name, reflect(connection, box))
        return known

    def close(self) -> None:
        """Gives all connections back to the database."""
        self.engine.dispose()
        self._replica.dispose()

    def _statements(self, box: Box) -> BoxStatements:
        known = self._boxes.get(box.name)
        if known is None:
            known = statements_for(self.engine.dialect.name, self.table(box), idle_timeout=self._idle_timeout)
            self._boxes[box.name] = known
        return known

    @contextmanager
    def _cursor(self, engine: Engine) -> Iterator[Cursor]:
        """For statements that each are a transaction of their own."""
        with translated(engine), _connected(engine) as connection:
            if engine.dialect.name == "postgresql":
                # Spares BEGIN and ROLLBACK; MySQL's driver would spend as much on the setting itself.
                connection.execution_options(isolation_level="AUTOCOMMIT")
            try:
                with closing(cursor_of(connection)) as cursor:
                    yield cursor
            except engine.dialect.loaded_dbapi.Error as error:
                if connection_lost(engine, error):
                    connection.invalidate()  # the pool would reset it, which fails with a traceback in the log
                raise


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    pool = engine.pool
    with engine.connect() as connection:
        try:
            yield connection
        finally:
            if engine.pool is not pool and not connection.invalidated:
                # The pool was thrown away meanwhile, with all that lay in it: who goes back there is never closed.
                connection.invalidate()


class _Transaction:
    """One claim's transaction, with the locks of its buckets."""

    def __init__(self, connection: Connection, cursor: Cursor, statements: BoxStatements) -> None:
        self.connection = connection
        self.cursor = cursor
        self.statements = statements
        self._held: list[int] = []
        self.gone = 0
        """Rows that the claim has deleted already."""

    def claim(self, wanted: Mapping[int, int], limit: int, *, only_outcomes: bool) -> Taken:
        """Takes the locks that are free, and reads the due rows of their buckets."""
        # What breaks off halfway may have taken any of them.
        self._held = list(wanted)
        taken = self.statements.claim(self.cursor, wanted, limit, only_outcomes=only_outcomes)
        self._held, self.gone = taken.granted, len(taken.rows) if taken.gone else 0
        return taken

    def commit(self) -> None:
        """Commits and frees the locks."""
        if self.connection.in_transaction():
            self.connection.commit()
        else:
            self.cursor.connection.commit()
        self._let_go()

    def finish(self, settlement: Settlement) -> None:
        """Writes all outcomes, commits and frees the locks."""
        if self.gone and self.gone == len(settlement.delivered):
            self.commit()
            return
        if self.gone:
            self.statements.bring_back(self.cursor)
        self.statements.finish(self.cursor, settlement)
        self._let_go()

    def _let_go(self) -> None:
        try:
            self._unlock()
        except self.connection.dialect.loaded_dbapi.Error:
            # All is written; the locks go with the connection.
            self.connection.invalidate()

    def end(self) -> None:
        """Undoes what is not committed and frees the locks; a connection that cannot do both does not go back to the pool."""
        if self.connection.invalidated:
            return
        try:
            # What the driver began beneath SQLAlchemy ends too.
            self.connection.rollback()
            self.connection.connection.rollback()
            self._unlock()
        except BaseException:
            self.connection.invalidate()
            raise

    def _unlock(self) -> None:
        if self._held:
            self.statements.unlock(self.cursor, self._held)
            self._held = []


class SqlClaim:
    """``Claim``: one transaction on one connection. Made by ``SqlStore.claim`` only."""

    def __init__(self, transaction: _Transaction, *, now: datetime, items: list[Item]) -> None:
        self._transaction = transaction
        self._statements = transaction.statements
        self._cursor = transaction.cursor
        self._engine = transaction.connection.engine
        self._session: Session | None = None
        self.now = now
        self.items: Sequence[Item] = items
        self.refused: frozenset[int] = frozenset()
        self.exhausted: frozenset[int] = frozenset()

    @classmethod
    def take(
        cls, transaction: _Transaction, box: Box, wanted: Mapping[int, int], limit: int, *, only_outcomes: bool
    ) -> SqlClaim:
        """A claim over those of the wanted buckets that nobody else has."""
        granted, now, share, rows, _ = transaction.claim(wanted, limit, only_outcomes=only_outcomes)
        exhausted = _exhausted(granted, rows, share)
        rows.sort()
        del rows[limit:]
        claim = cls(transaction, now=now, items=_items(rows, box, now))
        claim.refused = frozenset(wanted).difference(granted)
        claim.exhausted = exhausted
        return claim

    @property
    def session(self) -> Session:
        if self._session is None:
            if self._transaction.gone:
                raise RuntimeError("this claim was made with only_outcomes, so it has no session")
            self._statements.anchor(self._cursor)
            # SQLAlchemy must know of the open transaction: a session on an idle connection commits for good.
            self._transaction.connection.begin()
            # The handler's commit() ends its own savepoint, never the engine's transaction.
            self._session = Session(
                self._transaction.connection,
                join_transaction_mode="create_savepoint",
                expire_on_commit=False,
                autoflush=True,
            )
        return self._session

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        try:
            yield
            if self._session is not None:
                # Flushes: what is wrong with the handler's rows shows here, and is undone below.
                self._session.commit()
                self._session.expunge_all()
        except BaseException:
            if self._session is not None:
                self._session.rollback()
            raise

    def later_delivered(self, items: Sequence[Item]) -> frozenset[int]:
        with translated(self._engine):
            return frozenset(self._statements.later_delivered(self._cursor, items)) if items else frozenset()

    def commit(self, settlement: Settlement) -> None:
        with translated(self._engine):
            if self._session is None:
                self._transaction.finish(settlement)
                return
            # What the handlers wrote leaves the session's savepoint before the outcomes join it in the transaction.
            self._session.commit()
            self._session.close()
            self._statements.verify(self._cursor)
            self._statements.record(self._cursor, settlement)
            self._transaction.commit()


def _items(rows: Sequence[Row], box: Box, now: datetime) -> list[Item]:
    new = tuple.__new__  # what Item._make ends in, without the way there
    if rows and len(rows[0]) > ROW_FIELDS:
        return [new(Item, (*row[:ROW_FIELDS], box, now, *row[ROW_FIELDS:])) for row in rows]
    return list(map(new, repeat(Item), map(add, rows, repeat((box, now, None)))))


def _exhausted(granted: Sequence[int], rows: Sequence[Row], share: int) -> frozenset[int]:
    """The granted buckets of which fewer rows came than were asked for."""
    counts = Counter(map(_BUCKET, rows))
    return frozenset(bucket for bucket in granted if counts[bucket] < share)
