"""The insert statements that differ by database: the create side's counterpart of ``BoxStatements``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Insert, Select, Table, insert

from boxengine.errors import InvalidItem
from boxengine.ports import Attributes

ROWS_AT_ONCE, BYTES_AT_ONCE = 500, 1_000_000
"""The most for one statement, where SQLAlchemy does not divide rows into statements itself."""


class Inserts(ABC):
    """Statements over one table, through the caller's connection. None of them ends the transaction."""

    tells_new: bool
    """Whether ``new`` returns the rows that it inserted."""

    notifies = False
    """Whether a statement can wake the poller exactly when its transaction commits."""

    def __init__(self, table: Table, *, identities: Sequence[str], inbox: bool) -> None:
        """Args:
        identities: columns; two rows with the same value in one of them are the same item.
        inbox: whether ``new`` considers all of them, and not only ``dedup_key``.
        """
        self.table = table
        self.identities = tuple(identities)
        self.inbox = inbox

    def one(self, connection: Connection, row: Attributes) -> int:
        """Inserts one row; returns its id."""
        key = connection.execute(insert(self.table), row).inserted_primary_key
        if key is None:
            raise InvalidItem(f"the database returned no id for the new row of {self.table.fullname}")
        return int(key[0])

    def one_told(self, connection: Connection, row: Attributes, text: str) -> tuple[int, bool]:
        """The same, and notifies with this text if it is the transaction's turn (see ``waking.notifying``); whether it does.

        Only where ``notifies``.
        """
        raise NotImplementedError

    def run(self, connection: Connection, rows: Sequence[Attributes]) -> list[int]:
        """Inserts rows of one shape; returns their ids in the order given."""
        statement = insert(self.table).returning(self.table.c.id, sort_by_parameter_order=True)
        return list(connection.execute(statement, rows).scalars().all())

    def new(self, connection: Connection, rows: Sequence[Attributes]) -> Sequence[Any]:
        """Inserts the rows, all of one shape, that the table does not have yet.

        Returns id and identities of each inserted row if ``tells_new``; otherwise nothing.
        """
        found = connection.execute(self.insert_new(), rows)
        return found.all() if self.tells_new else ()

    @abstractmethod
    def insert_new(self) -> Insert:
        """The statement of ``new``."""

    def latest(self, query: Select[Any]) -> Select[Any]:
        """The query in a form that also finds rows committed after this transaction's snapshot."""
        # Locking reads ignore the snapshot.
        return query.with_for_update(read=True)

    def is_among(self, column: Column[Any], values: Sequence[Any]) -> ColumnElement[bool]:
        """Whether the column, one of the identities, has one of these values."""
        return column.in_(values)

    def move_on(self, connection: Connection, counters: Table, steps: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """Adds each ``last`` to its ``event_key``'s counter, which is created if missing; returns the counters' new values."""
        return dict(connection.execute(self.add_to(counters, steps)).all())

    @abstractmethod
    def add_to(self, counters: Table, steps: Sequence[Mapping[str, Any]]) -> Insert:
        """The statement of ``move_on``."""


def runs(rows: Sequence[Attributes]) -> list[list[Attributes]]:
    """Splits the rows, in their order, where the set of columns changes: one statement takes rows of one shape."""
    found: list[list[Attributes]] = []
    for row in rows:
        if found and found[-1][-1].keys() == row.keys():
            found[-1].append(row)
        else:
            found.append([row])
    return found


def chunks(run: Sequence[Attributes]) -> Iterator[list[Attributes]]:
    """Splits a run into parts that fit a statement: a server accepts a few megabytes at once."""
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
