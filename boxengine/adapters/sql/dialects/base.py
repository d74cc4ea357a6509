"""What the store asks of a dialect: the statements of one box's table, ready to run on a driver's cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.ports import PendingRow

Cursor = Any
"""A DBAPI cursor of the driver: psycopg, PyMySQL, mysqlclient."""
LOOKED_AT = 20
"""Rows of each bucket among which the one that has waited longest is looked for: they stand in the order of their ids, and
a delayed row may stand before others that have waited longer."""
LOOKED_THROUGH = 20
"""Times its limit: so many rows of its statuses, by id, a deletion looks at. What is old stands first, so that none is missed;
without an end, the last look of each pass would be through the whole table."""
Row = tuple[Any, ...]
"""The first eleven fields of ``Item``, ``id`` to ``processed_at``, in their order; of a numbered table also ``seq``."""
ROW_FIELDS = 11


class Taken(NamedTuple):
    """What a claim has."""

    granted: list[int]
    """Buckets whose locks were free."""
    now: datetime
    """The database's clock, zone UTC."""
    share: int
    """Rows that were asked for of each bucket."""
    rows: list[Row]
    gone: bool = False
    """Whether the rows are deleted already, under a savepoint, as if all had been delivered."""


class BoxStatements(Protocol):
    """The statements of one box. They run on the cursor given and leave the transaction to the store."""

    def poll(self, cursor: Cursor, buckets: Sequence[int], share: int, *, regular_only: bool) -> list[PendingRow]:
        """Due rows, at most ``share`` of each bucket."""

    def outlook(self, cursor: Cursor, buckets: Sequence[int]) -> list[tuple[int | None, float]]:
        """Buckets with a due row; and None with the seconds until the first row that waits for its time has it."""

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int, *, only_outcomes: bool = False) -> Taken:
        """Takes the locks that are free, until the transaction ends, and then reads the due rows, locked.

        The rows are read in a statement after that which took the locks: so it sees all that the previous holder
        committed before it let go.

        Args:
            buckets: each with the id after which to read.
            limit: of rows; divided among the buckets.
            only_outcomes: see ``Store.claim``; allows the rows to be deleted as they are read.
        """

    def bring_back(self, cursor: Cursor) -> None:
        """Undoes the deletion of a claim's rows; its locks stay. From here on others may touch the rows again."""

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> list[int]:
        """Ids of items that a delivered one of their key has overtaken."""

    def record(self, cursor: Cursor, settlement: Settlement) -> None:
        """Writes all outcomes."""

    def finish(self, cursor: Cursor, settlement: Settlement) -> None:
        """Writes all outcomes and commits, in one round trip where the driver can."""

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        """Frees the locks, after the transaction has ended, where its end does not free them."""

    def anchor(self, cursor: Cursor) -> None:
        """Marks the transaction before a handler's session joins it, where the database may end it behind its back."""

    def verify(self, cursor: Cursor) -> None:
        """Raises the driver's error if the transaction is not the one that was marked."""

    def oldest_pending(self, cursor: Cursor) -> datetime | None:
        """Since when (zone UTC) the first rows of the buckets have waited; see ``HistoryStore.oldest_pending``."""

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        """``created_at`` (zone UTC) of the row with the lowest id among those statuses."""

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """Deletes finished rows of a span of creation, at most ``limit``."""
