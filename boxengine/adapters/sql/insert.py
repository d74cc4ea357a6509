"""Inserts rows through the caller's own transaction: a ``Session``, a ``Connection``, or what ``run_sync`` passes on.

The wake-up of the poller rides along: on PostgreSQL as ``pg_notify`` in the same statement, which the database sends
once per transaction and only if it commits (``eased_notify`` says when not); elsewhere by way of Redis, after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, repeat
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnDefault,
    ColumnElement,
    Connection,
    DateTime,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    bindparam,
    func,
    insert,
    literal_column,
    select,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.sql.functions import FunctionElement

from boxengine.adapters.sql.after_commit import Send, send_after_commit
from boxengine.adapters.sql.columns import UtcMoment, utc_now
from boxengine.adapters.sql.copying import WORTHWHILE, Copying
from boxengine.adapters.sql.eased_notify import EasedNotify
from boxengine.adapters.sql.listen import CHANNEL
from boxengine.adapters.sql.models import box_table
from boxengine.adapters.sql.one_row import OneRow
from boxengine.adapters.sql.tables import reflect
from boxengine.domain.box import Box, BoxType
from boxengine.errors import InvalidItem
from boxengine.ports import Attributes, Inserted, Signal

ENGINE_OWNED = frozenset({"id", "status", "errors_count", "error_log", "processed_at", "updated_at"})
"""Columns a caller does not set."""
_TOLD = "boxengine_told"
"""The wake-up among a statement's parameters; no column is called so."""
ROWS_AT_ONCE, BYTES_AT_ONCE = 500, 1_000_000
"""In one statement, where SQLAlchemy does not divide rows into statements itself."""


class SqlRows:
    """``Rows`` of one box."""

    def __init__(
        self,
        box: Box,
        model: type | None = None,
        *,
        notify: bool = False,
        signal: Callable[[list[Signal]], None] | None = None,
        eased: EasedNotify | None = None,
    ) -> None:
        """Args:
        notify: wake the poller by the database's own notification, where it has one.
        eased: says which transactions notify by themselves; None: all do.
        signal: or, where it has none, by calling this after the commit.
        """
        self._box = box
        self._notify = notify
        self._signal = signal
        self._eased = eased
        self._use(model.__table__ if model is not None else box_table(box, MetaData()))  # type: ignore[attr-defined]
        self._adapted = model is not None
        self._copied: tuple[Copying | None] | None = None
        """What was found out about COPY, once it was asked."""

    def _use(self, table: Table) -> None:
        """From now on rows go into this table; what each of them would ask of it is found out once."""
        self._table = table
        self._columns = frozenset(table.columns.keys()) - ENGINE_OWNED
        # What tells that two rows are one: an inbox's message also by its uuid, which is all that old tables have.
        names = ("dedup_key", "uuid") if self._box.type is BoxType.INBOX else ("dedup_key",)
        self._identities = tuple(name for name in names if name in table.columns)
        self._numeric = isinstance(table.c.event_key.type, Integer)
        returned: list[Any] = [table.c.id]
        self._one_row = OneRow(table, insert(table).returning(*returned))
        if self._notify:
            # Not put together from the row's bucket: an application may be allowed to read its ids and nothing else.
            returned.append(func.pg_notify(literal_column(f"'{CHANNEL}'"), bindparam(_TOLD, type_=String)))
            self._one_told_row = OneRow(table, insert(table).returning(*returned))

    @property
    def columns(self) -> frozenset[str]:
        return self._columns

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        if isinstance(session, scoped_session):
            session = session()
        connection = _connection(session)
        if not self._adapted:
            self._adapt(connection)
        if self._numeric:
            rows = [{**row, "event_key": self._number(row["event_key"])} for row in rows]
        keyed = any(map(self._is_keyed, rows))
        send = self._sender(connection)
        notifies = send is None and self._notify and connection.dialect.name == "postgresql"
        riding = notifies and not keyed and len(rows) == 1
        if riding:
            rows = [{**rows[0], _TOLD: self._signal_of(rows[0]).encode()}]
        inserted = self._insert_rows(connection, rows, keyed=keyed)
        if send is not None:
            signal = self._signal_of(rows[0]) if len(rows) == 1 else Signal(self._box.name, None)
            send_after_commit(connection, [signal], send)
        elif notifies and not riding:
            connection.execute(select(func.pg_notify(CHANNEL, self._box.name)))
        return inserted

    def _number(self, key: str) -> int:
        try:
            return int(key)
        except ValueError:
            message = f"event_key {key!r} is no number, and the table {self._table.fullname} stores its keys as numbers"
            raise InvalidItem(f"box {self._box.name}: {message}") from None

    # ── the statements ───────────────────────────────────────────────────────────────────────────────

    def _insert_rows(self, connection: Connection, rows: Sequence[Attributes], *, keyed: bool) -> Inserted:
        return self._insert_mixed(connection, rows) if keyed else Inserted(self._insert_all(connection, rows))

    def _insert_all(self, connection: Connection, rows: Sequence[Attributes]) -> list[int]:
        if len(rows) == 1:
            return [self._insert_one(connection, rows[0])]
        identity = self._table.c.id
        ids: list[int] = []
        # insertmanyvalues wants rows of one shape; items of different shapes go run by run, in their order.
        for run in _runs(rows):
            copying = self._copying(connection) if len(run) >= WORTHWHILE else None
            if copying is not None and copying.takes(run):
                ids += self._copy(copying, connection, run)
            elif connection.dialect.insert_returning:
                statement = insert(self._table).returning(identity, sort_by_parameter_order=True)
                ids += connection.execute(statement, run).scalars().all()
            else:
                ids += self._insert_counted(connection, run)
        return ids

    def _copy(self, copying: Copying, connection: Connection, run: Sequence[Attributes]) -> list[int]:
        try:
            return copying.insert(connection, run)
        except DBAPIError:
            # The table may have been altered since it was looked at; the next batch looks again.
            self._copied = None
            raise

    def _copying(self, connection: Connection) -> Copying | None:
        if not Copying.possible(connection):
            return None
        if self._copied is None:
            self._copied = (Copying.of(connection, self._table),)
        return self._copied[0]

    def _insert_counted(self, connection: Connection, run: Sequence[Attributes]) -> list[int]:
        """MySQL returns the first id of a statement; the others follow at a fixed step, whatever its lock mode."""
        step = connection.exec_driver_sql("SELECT @@SESSION.auto_increment_increment").scalar_one()
        ids: list[int] = []
        for chunk in _chunks(run):
            first = connection.execute(insert(self._table).values(chunk)).lastrowid
            ids += range(first, first + step * len(chunk), step)
        return ids

    def _insert_one(self, connection: Connection, row: Attributes) -> int:
        if connection.dialect.name == "postgresql":
            return (self._one_told_row if _TOLD in row else self._one_row).insert(connection, row)
        key = connection.execute(insert(self._table), row).inserted_primary_key
        if key is None:
            raise InvalidItem(f"box {self._box.name}: the database returned no id for the new row")
        return int(key[0])

    # ── rows that may be there already ───────────────────────────────────────────────────────────────

    def _is_keyed(self, row: Attributes) -> bool:
        return any(row.get(name) is not None for name in self._identities)

    def _insert_mixed(self, connection: Connection, rows: Sequence[Attributes]) -> Inserted:
        ids: list[int] = []
        known: set[int] = set()
        for keyed, part in groupby(rows, self._is_keyed):
            run = list(part)
            inserted = self._insert_keyed(connection, run) if keyed else Inserted(self._insert_all(connection, run))
            # What an earlier part has just inserted is known to a later one, but it was not there already.
            known |= inserted.known.difference(ids)
            ids += inserted.ids
        return Inserted(ids, frozenset(known))

    def _insert_keyed(self, connection: Connection, rows: Sequence[Attributes]) -> Inserted:
        """Of a row that is there already, in the table or earlier among these, the id of the one that is."""
        # MySQL does not say which rows it has inserted, so it is asked before which are there.
        returning = connection.dialect.name in ("postgresql", "sqlite")
        before = set() if returning else set(self._look_up(connection, rows, {}, locked=False).values())
        found: dict[tuple[str, Any], int] = {}
        for run in _runs(rows):
            for row_id, *values in self._insert_unknown(connection, run):
                found.update(zip(marks(self._identities, values), repeat(row_id)))
        new = set(found.values())
        found |= self._look_up(connection, rows, found, locked=True)
        ids = [self._id_of(found, row) for row in rows]
        return Inserted(ids, frozenset(ids) - new if returning else frozenset(before))

    def _look_up(
        self, connection: Connection, rows: Sequence[Attributes], known: dict[tuple[str, Any], int], *, locked: bool
    ) -> dict[tuple[str, Any], int]:
        """The ids of rows that are there, by what they are known by; those ``known`` are not asked for."""
        found: dict[tuple[str, Any], int] = {}
        names = self._identities
        for name in names:
            unknown = [row for row in rows if _found(known, names, row) is None and _found(found, names, row) is None]
            wanted = [row[name] for row in unknown if row.get(name) is not None]
            if wanted:
                column = self._table.columns[name]
                query = select(self._table.c.id, column).where(column.in_(wanted))
                if locked and connection.dialect.name != "postgresql":
                    # The row may have been committed after this transaction's snapshot, which locking reads look past.
                    query = query.with_for_update(read=True)
                for row_id, value in connection.execute(query):
                    found.update(zip(marks((name,), (value,)), repeat(row_id)))
        return found

    def _insert_unknown(self, connection: Connection, run: Sequence[Attributes]) -> Sequence[Any]:
        """Inserts what is new, in the order given; id and identities of each, where the database returns them."""
        columns = self._table.c
        returned = [columns.id, *(columns[name] for name in self._identities)]
        match connection.dialect.name:
            case "postgresql":
                statement = postgresql.insert(self._table)
                if self._box.type is BoxType.INBOX:
                    statement = statement.on_conflict_do_nothing()
                else:
                    statement = statement.on_conflict_do_nothing(
                        index_elements=[columns.dedup_key], index_where=columns.dedup_key.is_not(None)
                    )
                return connection.execute(statement.returning(*returned), run).all()
            case "sqlite":
                from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - no worker runs on it

                ignoring = sqlite.insert(self._table).on_conflict_do_nothing()
                return connection.execute(ignoring.returning(*returned), run).all()
            case _:
                # Unlike INSERT IGNORE this forgives nothing but duplicates.
                forgiving = mysql.insert(self._table).on_duplicate_key_update(id=columns.id)
                connection.execute(forgiving, run)
                return ()

    def _id_of(self, known: dict[tuple[str, Any], int], row: Attributes) -> int:
        row_id = _found(known, self._identities, row)
        if row_id is None:
            what = ", ".join(f"{name} {row[name]}" for name in self._identities if row.get(name) is not None)
            raise InvalidItem(f"box {self._box.name}: the row with {what} contradicts a unique constraint of the table")
        return row_id

    # ── the wake-up ──────────────────────────────────────────────────────────────────────────────────

    def _signal_of(self, row: Attributes) -> Signal:
        return Signal(self._box.name, row["bucket"], due=row.get("available_at") is None)

    def _sender(self, connection: Connection) -> Send | None:
        """Who is to tell of the rows after the commit; None where nobody is, or the transaction does so itself."""
        if not self._notify or connection.dialect.name != "postgresql":
            return self._signal
        return None if self._eased is None else self._eased.sender(connection)

    def _adapt(self, connection: Connection) -> None:
        """Takes the table as it is: one made by sbmt-outbox may lack columns and call the payload otherwise."""
        found = reflect(connection, self._box)
        columns = []
        for column in self._table.columns:
            name = found.payload if column.name == "payload" else column.name
            if name in found.columns:
                copy = column._copy()  # noqa: SLF001 - SQLAlchemy's way to take a column over
                copy.name, copy.key = name, column.name
                if name in ("created_at", "updated_at"):
                    # Rails fills them in itself, so its tables have no default of their own.
                    copy.default = ColumnDefault(_stored_now(connection, zoned=found.zoned))
                if isinstance(copy.type, DateTime) and not found.zoned:
                    copy.type = UtcMoment()
                if name == "event_key" and found.numeric_keys:
                    copy.type = BigInteger()
                columns.append(copy)
        self._use(Table(self._table.name, MetaData(), *columns, schema=self._table.schema))
        self._adapted = True


def _stored_now(connection: Connection, *, zoned: bool) -> ColumnElement[Any] | FunctionElement[Any]:
    if connection.dialect.name == "postgresql" and not zoned:
        return func.timezone("UTC", func.now())
    return utc_now()


def _chunks(run: Sequence[Attributes]) -> Iterator[list[Attributes]]:
    """Parts that fit a statement: a server takes a few megabytes at once."""
    chunk: list[Attributes] = []
    size = 0
    for row in run:
        length = len(row["payload"])
        if chunk and (len(chunk) >= ROWS_AT_ONCE or size + length > BYTES_AT_ONCE):
            yield chunk
            chunk, size = [], 0
        chunk.append(row)
        size += length
    if chunk:
        yield chunk


def marks(names: Sequence[str], values: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """What a row is known by, in one spelling."""
    for name, value in zip(names, values, strict=True):
        if value is not None:
            yield name, str(UUID(str(value))) if name == "uuid" else value


def _found(known: dict[tuple[str, Any], int], names: Sequence[str], row: Attributes) -> int | None:
    own = marks(names, [row.get(name) for name in names])
    return next((known[mark] for mark in own if mark in known), None)


def _runs(rows: Sequence[Attributes]) -> list[list[Attributes]]:
    runs: list[list[Attributes]] = []
    for row in rows:
        if runs and runs[-1][-1].keys() == row.keys():
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _no_session(given: Any) -> str:
    kind = f"{type(given).__module__.partition('.')[0]}.{type(given).__name__}"
    needed = f"a SQLAlchemy Session or Connection is needed, not {kind}"
    if hasattr(given, "run_sync"):
        return f"{needed}; with an AsyncSession use acreate_outbox_item, or session.run_sync"
    if isinstance(given, Engine | sessionmaker):
        return f"{needed}; open one: with Session(engine) as session, session.begin()"
    if hasattr(given, "cursor"):
        return f"{needed}: that is the driver's own connection; open one through an Engine: with engine.begin() as connection"
    return needed


def _connection(session: Any) -> Connection:
    """The connection of the caller's open transaction; what the session has pending is flushed to it first."""
    match session:
        case Session():
            session.flush()
            return session.connection()
        case Connection():
            return session
        case _:
            raise InvalidItem(_no_session(session))
