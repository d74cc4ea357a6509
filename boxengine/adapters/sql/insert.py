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
    Connection,
    DateTime,
    Engine,
    Integer,
    MetaData,
    Table,
    func,
    select,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from boxengine.adapters.sql.after_commit import Send, send_after_commit
from boxengine.adapters.sql.columns import UtcMoment, stored_now
from boxengine.adapters.sql.dialects.inserts import Inserts
from boxengine.adapters.sql.dialects.postgresql_inserts import TOLD
from boxengine.adapters.sql.dialects.registry import inserts_for
from boxengine.adapters.sql.eased_notify import EasedNotify
from boxengine.adapters.sql.listen import CHANNEL
from boxengine.adapters.sql.log.tables import log_table
from boxengine.adapters.sql.models import box_table
from boxengine.adapters.sql.size_in_force import SizeInForce, comment
from boxengine.adapters.sql.tables import reflect
from boxengine.domain.box import Box, BoxType, Storage
from boxengine.errors import InvalidItem
from boxengine.ports import Attributes, Inserted, Signal

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
        eased: EasedNotify | None = None,
    ) -> None:
        """Args:
        notify: wake the poller by the database's own notification, where it has one.
        eased: says which transactions notify by themselves; None: all do.
        signal: or, where it has none, by calling this after the commit.
        """
        self._box = box
        self._size = SizeInForce(box)
        self._notify = notify
        self._signal = signal
        self._eased = eased
        table: Table = model.__table__ if model is not None else box_table(box, MetaData())  # type: ignore[attr-defined]
        logged = box.storage is Storage.LOG
        self._use(log_table(table) if logged else table)
        # A log is boxengine's own, with the columns that it was given.
        self._adapted = logged or model is not None

    def _use(self, table: Table) -> None:
        """From now on rows go into this table; what each of them would ask of it is found out once."""
        self._table = table
        self._columns = frozenset(table.columns.keys()) - ENGINE_OWNED
        # What tells that two rows are one: an inbox's message also by its uuid, which is all that old tables have.
        names = ("dedup_key", "uuid") if self._box.type is BoxType.INBOX else ("dedup_key",)
        self._identities = tuple(name for name in names if name in table.columns)
        self._numeric = isinstance(table.c.event_key.type, Integer)
        self._inserts: dict[str, Inserts] = {}
        """By the name of the database's dialect."""

    def _into(self, connection: Connection) -> Inserts:
        """How rows go into the table of this connection's database."""
        dialect = connection.dialect.name
        found = self._inserts.get(dialect)
        if found is None:
            inbox = self._box.type is BoxType.INBOX
            found = inserts_for(dialect, self._table, identities=self._identities, inbox=inbox)
            self._inserts[dialect] = found
        return found

    @property
    def columns(self) -> frozenset[str]:
        return self._columns

    def insert(self, session: Any, rows: Sequence[Attributes]) -> Inserted:
        if isinstance(session, scoped_session):
            session = session()
        connection = _connection(session)
        if not self._size.agreed:
            self._size.demand(lambda: comment(connection, self._table))
        if not self._adapted:
            self._adapt(connection)
        if self._numeric:
            rows = [{**row, "event_key": self._number(row["event_key"])} for row in rows]
        keyed = any(map(self._is_keyed, rows))
        send = self._sender(connection)
        notifies = send is None and self._notify and self._into(connection).notifies
        riding = notifies and not keyed and len(rows) == 1
        if riding:
            rows = [{**rows[0], TOLD: self._signal_of(rows[0]).encode()}]
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
        inserts = self._into(connection)
        if len(rows) == 1:
            return [inserts.one(connection, rows[0])]
        # Each statement takes rows of one shape; items of different shapes go run by run, in their order.
        return [row_id for run in _runs(rows) for row_id in inserts.run(connection, run)]

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
        inserts = self._into(connection)
        # A database that does not say which rows it has inserted is asked before which are there.
        before = set() if inserts.tells_new else set(self._look_up(connection, rows, {}, locked=False).values())
        found: dict[tuple[str, Any], int] = {}
        for run in _runs(rows):
            for row_id, *values in inserts.new(connection, run):
                found.update(zip(marks(self._identities, values), repeat(row_id)))
        new = set(found.values())
        found |= self._look_up(connection, rows, found, locked=True)
        ids = [self._id_of(found, row) for row in rows]
        return Inserted(ids, frozenset(ids) - new if inserts.tells_new else frozenset(before))

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
                if locked:
                    query = self._into(connection).latest(query)
                for row_id, value in connection.execute(query):
                    found.update(zip(marks((name,), (value,)), repeat(row_id)))
        return found

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
        if not self._notify or not self._into(connection).notifies:
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
                    copy.default = ColumnDefault(stored_now(connection.dialect, zoned=found.zoned))
                if isinstance(copy.type, DateTime) and not found.zoned:
                    copy.type = UtcMoment()
                if name == "event_key" and found.numeric_keys:
                    copy.type = BigInteger()
                columns.append(copy)
        self._use(Table(self._table.name, MetaData(), *columns, schema=self._table.schema))
        self._adapted = True


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
