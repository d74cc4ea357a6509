"""What the store asks of a dialect: the statements of one box's table, ready to run on a driver's cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.ports import PendingRow

Cursor = Any
"""A DBAPI cursor of the driver: psycopg, PyMySQL, mysqlclient."""
Row = tuple[Any, ...]
"""The first eleven fields of ``Item``, ``id`` to ``processed_at``, in their order."""


class BoxStatements(Protocol):
    """The statements of one box. They run on the cursor given and leave the transaction to the store."""

    def poll(self, cursor: Cursor, buckets: Sequence[int], share: int, *, regular_only: bool) -> list[PendingRow]:
        """Due rows, at most ``share`` of each bucket."""

    def due_buckets(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
        """Buckets with a due row."""

    def lock(self, cursor: Cursor, buckets: Sequence[int]) -> tuple[list[int], datetime]:
        """Takes the locks that are free, until the transaction ends; which, and the database's clock (zone UTC)."""

    def read(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[Row]:
        """Due rows after the given id of each bucket, locked, at most ``share`` of each bucket."""

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> list[int]:
        """Ids of items that a delivered one of their key has overtaken."""

    def record(self, cursor: Cursor, settlement: Settlement) -> None:
        """Writes all outcomes."""

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        """Frees the locks, after the transaction has ended, where its end does not free them."""

    def anchor(self, cursor: Cursor) -> None:
        """Marks the transaction before a handler's session joins it, where the database may end it behind its back."""

    def verify(self, cursor: Cursor) -> None:
        """Raises the driver's error if the transaction is not the one that was marked."""

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        """``created_at`` (zone UTC) of the row with the lowest id among those statuses."""

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """Deletes finished rows of a span of creation, at most ``limit``."""
