"""Rows as people look at them and act on them: statements of SQLAlchemy Core, the same for every database.

A change locks its rows in id order and passes over those that a worker holds, so it neither waits for a delivery nor
deadlocks with one; whether a row is still meant is decided under its lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    DateTime,
    Integer,
    TableClause,
    and_,
    column,
    delete,
    func,
    select,
    table,
    update,
)

from boxengine.adapters.sql.columns import utc_now
from boxengine.adapters.sql.errors import translated
from boxengine.adapters.sql.listen import CHANNEL
from boxengine.adapters.sql.store import SqlStore
from boxengine.adapters.sql.tables import BoxTable
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.errors import QueueUnavailable
from boxengine.ports import ItemFilter, ItemRow, Signal

_NUMBERS = {"id": BigInteger(), "bucket": Integer(), "status": Integer(), "errors_count": Integer()}
_RAW_UUID = 16
"""Bytes; as some MySQL schemas keep it."""
_MOMENTS = ("created_at", "processed_at", "available_at", "updated_at")
_SHOWN = (
    "id",
    "uuid",
    "event_name",
    "event_key",
    "bucket",
    "status",
    "errors_count",
    "created_at",
    "processed_at",
    "available_at",
    "dedup_key",
    "options",
    "error_log",
)


class SqlItems:
    """``ItemsStore`` over the database of a ``SqlStore``."""

    def __init__(
        self, store: SqlStore, *, notify: bool = False, signal: Callable[[list[Signal]], None] | None = None
    ) -> None:
        """Args:
        store: knows the tables.
        notify: wake the workers by the database's own notification, where it has one.
        signal: or, where it has none, by calling this after the commit.
        """
        self._store = store
        self._notify = notify
        self._signal = signal

    # ── looking ──────────────────────────────────────────────────────────────────────────────────────

    def count(self, box: Box, which: ItemFilter) -> int:
        with self._rows(box) as (connection, rows):
            query = select(func.count()).select_from(rows.table).where(*rows.meant(which))
            return int(connection.execute(query).scalar_one())

    def ids(self, box: Box, which: ItemFilter, *, after: int, limit: int) -> list[int]:
        with self._rows(box) as (connection, rows):
            return list(connection.execute(rows.next([rows.table.c.id], which, after, limit)).scalars())

    def page(self, box: Box, which: ItemFilter, *, after: int, limit: int) -> list[ItemRow]:
        with self._rows(box) as (connection, rows):
            found = connection.execute(rows.next(rows.shown(), which, after, limit)).mappings()
            return [_item_row(row) for row in found]

    def get(self, box: Box, item_id: int) -> ItemRow | None:
        with self._rows(box) as (connection, rows):
            payload = rows.table.c[rows.payload].label("payload")
            query = select(*rows.shown(), payload).where(rows.table.c.id == item_id)
            found = connection.execute(query).mappings().one_or_none()
            return None if found is None else _item_row(found)

    # ── acting ───────────────────────────────────────────────────────────────────────────────────────

    def retry(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        with self._rows(box) as (connection, rows):
            status = rows.table.c.status
            waiting = and_(status == int(Status.PENDING), rows.table.c.errors_count > 0)
            allowed = status.in_([int(Status.FAILED), int(Status.DISCARDED)]) | waiting
            held = rows.lock(connection, which, ids, allowed)
            rows.change(connection, held, status=int(Status.PENDING), errors_count=0, processed_at=None)
            if held and self._notify and connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_notify(CHANNEL, box.name)))
        if held and self._signal is not None:
            # The commit stands; a lost hint costs one poll interval.
            with suppress(QueueUnavailable):
                self._signal([Signal(box.name, None)])
        return frozenset(held)

    def discard(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        with self._rows(box) as (connection, rows):
            allowed = rows.table.c.status.in_([int(Status.PENDING), int(Status.FAILED)])
            held = rows.lock(connection, which, ids, allowed)
            rows.change(connection, held, status=int(Status.DISCARDED), processed_at=rows.now)
        return frozenset(held)

    def delete(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        with self._rows(box) as (connection, rows):
            pending_too = Status.PENDING in which.statuses
            allowed = [] if pending_too else [rows.table.c.status != int(Status.PENDING)]
            held = rows.lock(connection, which, ids, *allowed)
            if held:
                connection.execute(delete(rows.table).where(rows.table.c.id.in_(held)))
        return frozenset(held)

    @contextmanager
    def _rows(self, box: Box) -> Iterator[tuple[Connection, _Rows]]:
        """One transaction over the box's table."""
        found = self._store.table(box)
        with translated(self._store.engine), self._store.engine.begin() as connection:
            yield connection, _Rows(found, connection.dialect.name)


class _Rows:
    """The table of one box as it really is, and the parts that statements over it are made of."""

    def __init__(self, found: BoxTable, dialect: str) -> None:
        schema, _, name = found.box.table.rpartition(".")
        moment = DateTime(timezone=found.zoned)
        types: dict[str, Any] = _NUMBERS | dict.fromkeys(_MOMENTS, moment)
        columns = [column(each, types.get(each)) for each in sorted(found.columns)]
        self.table: TableClause = table(name, *columns, schema=schema or None)
        self.payload = found.payload
        self._zoned = found.zoned
        self._has = found.has
        self._dialect = dialect

    @property
    def now(self) -> ColumnElement[Any]:
        """The database's clock in the form of this table's columns."""
        if self._dialect == "postgresql" and not self._zoned:
            return func.timezone("UTC", func.now())
        return utc_now()

    def shown(self) -> list[ColumnElement[Any]]:
        """The columns that people see and the table has."""
        return [self.table.c[name] for name in _SHOWN if self._has(name)]

    def meant(self, which: ItemFilter) -> list[ColumnElement[bool]]:
        """The filter as conditions."""
        columns = self.table.c
        conditions: list[ColumnElement[bool]] = []
        if which.statuses:
            conditions.append(columns.status.in_(sorted(int(status) for status in which.statuses)))
        if which.ids:
            conditions.append(columns.id.in_(which.ids))
        if which.event_key is not None:
            conditions.append(columns.event_key == which.event_key)
        if which.created_from is not None:
            conditions.append(columns.created_at >= self._moment(which.created_from))
        if which.created_before is not None:
            conditions.append(columns.created_at < self._moment(which.created_before))
        if which.tried:
            conditions.append(columns.errors_count > 0)
        return conditions

    def next(self, columns: Sequence[ColumnElement[Any]], which: ItemFilter, after: int, limit: int) -> Any:
        """The next rows by id."""
        identity = self.table.c.id
        return select(*columns).where(identity > after, *self.meant(which)).order_by(identity).limit(limit)

    def lock(
        self, connection: Connection, which: ItemFilter, ids: Sequence[int], *allowed: ColumnElement[bool]
    ) -> list[int]:
        """Locks those of the rows that are meant, allowed and free."""
        if not ids:
            return []
        identity = self.table.c.id
        query = select(identity).where(identity.in_(ids), *self.meant(which), *allowed).order_by(identity)
        return list(connection.execute(query.with_for_update(skip_locked=True)).scalars())

    def change(self, connection: Connection, ids: Sequence[int], **values: Any) -> None:
        """Updates these rows."""
        if ids:
            connection.execute(update(self.table).where(self.table.c.id.in_(ids)).values(**values, updated_at=self.now))

    def _moment(self, moment: datetime) -> datetime:
        return moment if self._zoned else moment.astimezone(UTC).replace(tzinfo=None)


def _item_row(row: Any) -> ItemRow:
    values: dict[str, Any] = dict.fromkeys((*_SHOWN, "payload"))
    values |= {name: _with_zone(value) for name, value in row.items()}
    options = values["options"]
    values["options"] = json.loads(options) if isinstance(options, str | bytes) else options
    uuid = values["uuid"]
    values["uuid"] = str(UUID(bytes=uuid)) if isinstance(uuid, bytes) and len(uuid) == _RAW_UUID else str(uuid)
    if isinstance(values["payload"], str):
        values["payload"] = values["payload"].encode()
    return ItemRow(**values)


def _with_zone(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
