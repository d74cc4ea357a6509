"""Inserts rows through the caller's own transaction: a ``Session``, a ``Connection``, or what ``run_sync`` passes on.

The wake-up of the poller rides along: on PostgreSQL as ``pg_notify`` in the same statement, which the database sends
once per transaction and only if it commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Insert, MetaData, Table, event, func, insert, select
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.orm import Session

from boxengine.adapters.sql.listen import CHANNEL
from boxengine.adapters.sql.models import box_table
from boxengine.adapters.sql.tables import reflect
from boxengine.domain.box import Box
from boxengine.engine.create import Attributes
from boxengine.errors import InvalidItem
from boxengine.ports import Signal

ENGINE_OWNED = frozenset({"id", "status", "errors_count", "error_log", "processed_at", "updated_at"})
"""Columns a caller does not set."""


class SqlRows:
    """``Rows`` of one box."""

    def __init__(
        self,
        box: Box,
        model: type | None = None,
        *,
        notify: bool = False,
        signal: Callable[[list[Signal]], None] | None = None,
    ) -> None:
        """Args:
        notify: wake the poller by the database's own notification, where it has one.
        signal: or wake it by calling this after the commit.
        """
        self._box = box
        self._table: Table = model.__table__ if model is not None else box_table(box, MetaData())  # type: ignore[attr-defined]
        self._adapted = model is not None
        self._notify = notify
        self._signal = signal

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self._table.columns.keys()) - ENGINE_OWNED

    def insert(self, session: Any, rows: Sequence[Attributes]) -> list[int]:
        connection = _connection(session)
        if not self._adapted:
            self._adapt(connection)
        keyed = any(row.get("dedup_key") is not None for row in rows)
        ids = self._insert_keyed(connection, rows) if keyed else self._insert_all(connection, rows)
        self._wake(session, connection, rows, done=not keyed and len(rows) == 1)
        return ids

    # ── the statements ───────────────────────────────────────────────────────────────────────────────

    def _insert_all(self, connection: Connection, rows: Sequence[Attributes]) -> list[int]:
        if len(rows) == 1:
            return [self._insert_one(connection, rows[0])]
        identity = self._table.c.id
        ids: list[int] = []
        # insertmanyvalues wants rows of one shape; items of different shapes go run by run, in their order.
        for run in _runs(rows):
            statement = insert(self._table).returning(identity, sort_by_parameter_order=True)
            ids += connection.execute(statement, run).scalars().all()
        return ids

    def _insert_one(self, connection: Connection, row: Attributes) -> int:
        statement = insert(self._table).values(row)
        if connection.dialect.name == "postgresql":
            if self._notify:
                told = func.pg_notify(CHANNEL, f"{self._box.name}:{row['bucket']}")
                return int(connection.execute(statement.returning(self._table.c.id, told)).scalar_one())
            return int(connection.execute(statement.returning(self._table.c.id)).scalar_one())
        key = connection.execute(statement).inserted_primary_key
        if key is None:
            raise InvalidItem(f"box {self._box.name}: the database returned no id for the new row")
        return int(key[0])

    def _insert_keyed(self, connection: Connection, rows: Sequence[Attributes]) -> list[int]:
        """One by one: a row whose ``dedup_key`` is there already gives the id of the one that has it."""
        return [self._insert_unless_known(connection, row) for row in rows]

    def _insert_unless_known(self, connection: Connection, row: Attributes) -> int:
        columns = self._table.c
        key = row.get("dedup_key")
        if key is None:
            return self._insert_one(connection, row)
        connection.execute(self._ignoring_duplicates(connection).values(row))
        known = connection.execute(select(columns.id).where(columns.dedup_key == key)).scalar_one()
        return int(known)

    def _ignoring_duplicates(self, connection: Connection) -> Insert:
        columns = self._table.c
        if connection.dialect.name == "postgresql":
            return postgresql.insert(self._table).on_conflict_do_nothing(
                index_elements=[columns.dedup_key], index_where=columns.dedup_key.is_not(None)
            )
        # Not INSERT IGNORE, which would also swallow what is wrong with the row.
        return mysql.insert(self._table).on_duplicate_key_update(dedup_key=columns.dedup_key)

    # ── the wake-up ──────────────────────────────────────────────────────────────────────────────────

    def _wake(self, session: Any, connection: Connection, rows: Sequence[Attributes], *, done: bool) -> None:
        if self._notify and connection.dialect.name == "postgresql":
            if not done:
                connection.execute(select(func.pg_notify(CHANNEL, self._box.name)))
        elif self._signal is not None:
            bucket = rows[0]["bucket"] if len(rows) == 1 else None
            signals, send = [Signal(self._box.name, bucket)], self._signal
            if isinstance(session, Session):
                event.listen(session, "after_commit", lambda _session: send(signals), once=True)
            else:
                event.listen(connection, "commit", lambda _connection: send(signals), once=True)

    def _adapt(self, connection: Connection) -> None:
        """Takes the table as it is: one made by sbmt-outbox may lack columns and call the payload otherwise."""
        found = reflect(connection, self._box)
        columns = []
        for column in self._table.columns:
            name = found.payload if column.name == "payload" else column.name
            if name in found.columns:
                copy = column._copy(name=name)  # noqa: SLF001 - SQLAlchemy's way to take a column over
                copy.key = column.name
                columns.append(copy)
        self._table = Table(self._table.name, MetaData(), *columns, schema=self._table.schema)
        self._adapted = True


def _runs(rows: Sequence[Attributes]) -> list[list[Attributes]]:
    runs: list[list[Attributes]] = []
    for row in rows:
        if runs and runs[-1][-1].keys() == row.keys():
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _connection(session: Any) -> Connection:
    """The connection of the caller's open transaction; what the session has pending is flushed to it first."""
    match session:
        case Session():
            session.flush()
            return session.connection()
        case Connection():
            return session
        case _:
            raise InvalidItem(
                f"a Session or Connection is needed, not {type(session).__name__}; "
                "with an AsyncSession use acreate_outbox_item, or session.run_sync"
            )
