"""What the store asks of a dialect: the statements of one box's table, ready to run on a driver's cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self

from boxengine.domain.box import StrictOrder
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
    unreadable: Mapping[int, str] = {}
    """By id, those of the rows that could not be read, and why; in ``rows`` they are as far as they can be made out."""
    exhausted: frozenset[int] | None = None
    """Granted buckets with nothing else that is due; None: those of which fewer rows came than were asked for."""


class BoxStatements(Protocol):
    """The statements of one box. They run on the cursor given and leave the transaction to the store."""

    strict_order: StrictOrder

    def errors_count(self, cursor: Cursor, item_id: int) -> int:
        """Of a row that is there."""

    def poll(self, cursor: Cursor, buckets: Sequence[int], share: int, *, regular_only: bool) -> list[PendingRow]:
        """Due rows, at most ``share`` of each bucket."""

    def outlook(self, cursor: Cursor, buckets: Sequence[int]) -> list[tuple[int | None, float]]:
        """Buckets with a due row; and None with the seconds until the first row that waits for its time has it."""

    def for_claim(self) -> Self:
        """The statements of one claim and its settlement, which may remember what the claim has read."""

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        """Takes the locks that are free, until the transaction ends, and then reads the due rows, locked.

        The rows are read in a statement after that which took the locks: so it sees all that the previous holder
        committed before it let go.

        Args:
            buckets: each with the id after which to read.
            limit: of rows; divided among the buckets.
        """

    def claim_plain(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        """The same for a plain claim, which allows the rows to be deleted as they are read."""

    def sizes(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, int]:
        """Bytes of these rows' payloads, by id; those without a payload are left out."""

    def payloads(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, bytes]:
        """These rows' payloads, by id."""

    def bring_back(self, cursor: Cursor) -> None:
        """Undoes the deletion of a claim's rows; its locks stay. From here on others may touch the rows again."""

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> dict[int, int]:
        """Of items that a delivered one of their key has overtaken, by id, the id of one that has."""

    def record(self, cursor: Cursor, settlement: Settlement) -> int:
        """Writes all outcomes; returns how many rows took theirs."""

    def finish(self, cursor: Cursor, settlement: Settlement) -> int:
        """Writes all outcomes and commits, in one round trip where the driver can; returns how many rows took theirs.

        Where a statement fails, nothing is committed.
        """

    def seal(self, cursor: Cursor) -> None:
        """Writes what is left to be written behind the outcomes of a claim, before its transaction is committed."""

    def hold_again(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
        """Takes the locks of a claim once more after its transaction was undone; those buckets that nobody has taken."""

    def hold_pending(self, cursor: Cursor, ids: Sequence[int]) -> list[int]:
        """Locks those of the rows that are still pending."""

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        """Frees the locks, after the transaction has ended, where its end does not free them."""

    def anchor(self, cursor: Cursor) -> None:
        """Marks the transaction before a handler's session joins it, where the database may end it behind its back."""

    def take_back(self, cursor: Cursor) -> None:
        """Prepares for outcomes after a handler's session has used the transaction.

        Undoes what the handlers set (roles, paths, limits), so that it cannot touch the outcomes.

        Raises:
            StoreUnavailable: the transaction is not the one that was marked. Or the driver's error, which says the same.
        """

    def clean(self, cursor: Cursor) -> bool:
        """After a transaction that a handler's session used: frees whatever the handlers left on the connection.

        False where only a new connection is a clean one.
        """

    def pending_in_log(self, cursor: Cursor, limit: int) -> int:
        """How many rows of the box's log no delivery has passed, where it has one; from the limit on it counts no further."""

    def oldest_pending(self, cursor: Cursor) -> datetime | None:
        """Since when (zone UTC) the first rows of the buckets have waited; see ``HistoryStore.oldest_pending``."""

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        """``created_at`` (zone UTC) of the row with the lowest id among those statuses."""

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """Deletes finished rows of a span of creation, at most ``limit``."""

    def sweep(self, cursor: Cursor, before: Mapping[int, datetime], after: int, limit: int) -> tuple[int, int | None]:
        """Deletes the old ones among the next rows by id, at most ``limit``; how many, and the last id looked at."""
