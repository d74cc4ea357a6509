"""Inserts on PostgreSQL: the statement returns the ids, and may also notify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Insert,
    Select,
    String,
    Table,
    Uuid,
    bindparam,
    insert,
    type_coerce,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import UserDefinedType

from boxengine.adapters.sql.dialects.copying import WORTHWHILE, Copying
from boxengine.adapters.sql.dialects.inserts import Inserts
from boxengine.adapters.sql.dialects.one_row import OneRow
from boxengine.adapters.sql.waking.notifying import notify_in_turn
from boxengine.ports import Attributes

TOLD = "boxengine_told"
"""The name of the wake-up's parameter; no column has it."""


class _AsColumn(UserDefinedType[str]):
    """A text that takes the type of the column it is compared with: uuids are text in some tables made elsewhere."""

    cache_ok = True


class PostgresInserts(Inserts):
    """Statements over one table on PostgreSQL."""

    tells_new = True
    notifies = True

    def __init__(self, table: Table, *, identities: Sequence[str], inbox: bool) -> None:
        super().__init__(table, identities=identities, inbox=inbox)
        self._one_row = OneRow(table, self.insert_one())
        self._one_told_row = OneRow(table, self.insert_one(told=True))
        self._copied: tuple[Copying | None] | None = None
        """Whether COPY is possible, once that has been looked up."""

    def insert_one(self, *, told: bool = False) -> Any:
        """The statement of ``one``; ``told``: that of ``one_told``."""
        returned: list[Any] = [self.table.c.id]
        if told:
            # A parameter, not built from the row's bucket: an application may be allowed to read only the id column.
            returned.append(notify_in_turn(bindparam(TOLD, type_=String)))
        return insert(self.table).returning(*returned)

    def one(self, connection: Connection, row: Attributes) -> int:
        return int(self._one_row.insert(connection, row).scalar_one())

    def one_told(self, connection: Connection, row: Attributes, text: str) -> tuple[int, bool]:
        inserted: Any = self._one_told_row.insert(connection, {**row, TOLD: text}).one()
        return int(inserted[0]), bool(inserted[1])

    def run(self, connection: Connection, rows: Sequence[Attributes]) -> list[int]:
        copying = self._copying(connection) if len(rows) >= WORTHWHILE else None
        try:
            ids = None if copying is None else copying.insert(connection, rows)
        except DBAPIError:
            # The table may have been altered since it was looked up; the next batch looks it up again.
            self._copied = None
            raise
        return super().run(connection, rows) if ids is None else ids

    def _copying(self, connection: Connection) -> Copying | None:
        if not Copying.possible(connection):
            return None
        if self._copied is None:
            self._copied = (Copying.of(connection, self.table),)
        return self._copied[0]

    def insert_new(self) -> Insert:
        columns = self.table.c
        statement = postgresql.insert(self.table)
        if self.inbox:
            statement = statement.on_conflict_do_nothing()
        else:
            statement = statement.on_conflict_do_nothing(
                index_elements=[columns.dedup_key], index_where=columns.dedup_key.is_not(None)
            )
        return statement.returning(columns.id, *(columns[name] for name in self.identities))

    def latest(self, query: Select[Any]) -> Select[Any]:
        # Each statement has a snapshot of its own.
        return query

    def is_among(self, column: Column[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        if not isinstance(column.type, Uuid):
            return super().is_among(column, values)
        texts = [str(UUID(str(value))) for value in values]
        return type_coerce(column, _AsColumn()).in_(texts)

    def add_to(self, counters: Table, steps: Sequence[Mapping[str, Any]]) -> Insert:
        columns = counters.c
        adding = postgresql.insert(counters).values(steps)
        moved = {"last": columns.last + adding.excluded.last}
        upsert = adding.on_conflict_do_update(index_elements=[columns.event_key], set_=moved)
        return upsert.returning(columns.event_key, columns.last)
