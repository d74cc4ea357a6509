"""Inserts rows that the table may already have: those with a ``dedup_key``, and in an inbox those with a message's uuid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import Connection, Table, select

from boxengine.adapters.sql.dialects.inserts import Inserts, runs
from boxengine.domain.box import Box, BoxType
from boxengine.errors import InvalidItem
from boxengine.ports import Attributes, Inserted

LOOKED_UP_AT_ONCE = 10_000
"""Values in one statement. PostgreSQL takes 65,535 at most, and asyncpg half as many."""

Mark: TypeAlias = tuple[str, Any]
"""A column and a value that identify a row."""


class KnownRows:
    """Recognises rows that one table already has, by their identities."""

    def __init__(self, box: Box, table: Table, *, aside: Table | None = None) -> None:
        """``aside``: another table, in which the same item may stand in place of this one, or beside it."""
        self._box = box
        self._table = table
        self._aside = aside
        # An inbox also identifies a message by its uuid: tables of sbmt-outbox have nothing else.
        names = ("dedup_key", "uuid") if box.type is BoxType.INBOX else ("dedup_key",)
        self.identities = tuple(name for name in names if name in table.columns)
        """The columns that identify a row."""

    def may_know(self, row: Attributes) -> bool:
        """Whether the row has an identity, so that the table may already have it."""
        return any(row.get(name) is not None for name in self.identities)

    def insert(self, connection: Connection, inserts: Inserts, rows: Sequence[Attributes]) -> Inserted:
        """Inserts the new rows. For a duplicate of one in the table, or of an earlier one here, returns the first row's id."""
        # A database that does not report which rows it inserted must be asked beforehand which ones exist.
        before = set() if inserts.tells_new else set(self.look_up(connection, inserts, rows, {}, locked=False).values())
        found = {} if self._aside is None else self._look_up(connection, inserts, self._aside, rows, {}, locked=False)
        new: set[int] = set()
        for run in runs([row for row in rows if self._found(found, row) is None] if found else rows):
            for row_id, *values in inserts.new(connection, run):
                found.update(zip(_marks(self.identities, values), repeat(row_id)))
                new.add(row_id)
        found |= self.look_up(connection, inserts, rows, found, locked=True)
        ids = [self.id_of(found, row) for row in rows]
        return Inserted(ids, frozenset(ids) - new if inserts.tells_new else frozenset(before))

    def look_up(
        self,
        connection: Connection,
        inserts: Inserts,
        rows: Sequence[Attributes],
        known: dict[Mark, int],
        *,
        locked: bool,
    ) -> dict[Mark, int]:
        """Finds the ids of existing rows by their marks. Skips rows that ``known`` has."""
        return self._look_up(connection, inserts, self._table, rows, known, locked=locked)

    def _look_up(
        self,
        connection: Connection,
        inserts: Inserts,
        table: Table,
        rows: Sequence[Attributes],
        known: dict[Mark, int],
        *,
        locked: bool,
    ) -> dict[Mark, int]:
        found: dict[Mark, int] = {}
        for name in self.identities:
            unknown = [row for row in rows if self._found(known, row) is None and self._found(found, row) is None]
            wanted = [row[name] for row in unknown if row.get(name) is not None]
            column = table.columns[name]
            for start in range(0, len(wanted), LOOKED_UP_AT_ONCE):
                part = wanted[start : start + LOOKED_UP_AT_ONCE]
                query = select(table.c.id, column).where(inserts.is_among(column, part))
                if locked:
                    query = inserts.latest(query)
                for row_id, value in connection.execute(query):
                    found.update(zip(_marks((name,), (value,)), repeat(row_id)))
        return found

    def id_of(self, known: dict[Mark, int], row: Attributes) -> int:
        """The id of the existing row of which this one is a duplicate.

        Raises:
            InvalidItem: there is none, so another unique constraint refused the row.
        """
        row_id = self._found(known, row)
        if row_id is None:
            what = ", ".join(f"{name} {row[name]}" for name in self.identities if row.get(name) is not None)
            raise InvalidItem(f"box {self._box.name}: the row with {what} contradicts a unique constraint of the table")
        return row_id

    def marks_of(self, row: Attributes) -> list[Mark]:
        """The marks that identify the row."""
        return list(_marks(self.identities, [row.get(name) for name in self.identities]))

    def _found(self, known: dict[Mark, int], row: Attributes) -> int | None:
        return next((known[mark] for mark in self.marks_of(row) if mark in known), None)


def _marks(names: Sequence[str], values: Sequence[Any]) -> Iterator[Mark]:
    """Pairs names and values; each value is spelled one way."""
    for name, value in zip(names, values, strict=True):
        if value is not None:
            yield name, str(UUID(str(value))) if name == "uuid" else value
