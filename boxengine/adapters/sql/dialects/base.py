"""What the store asks of a dialect: the statements of one box's table, ready to run on a driver's cursor."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, Self

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.ports import Count, PendingRow

LOOKED_AT = 20
"""The row that has waited longest is looked for among so many of each bucket's first rows: they are in id order, and
a delayed row may come before others that have waited longer."""
LOOKED_THROUGH = 20
"""A deletion reads its statuses' rows by id, at most this many times its limit. Old rows come first, so none is missed;
without the cap, the last query of each pass would read the whole table."""
FIRST_GIVEN_UP = 1_000
"""The failed or discarded row that has been kept longest is looked for among so many of the first ones by id: the order in which
items fail is not that of their ids."""
MOST_PASSED = 250
"""Due rows that one statement reads among those that bounds have passed. While so many are due, no bounds are used: from the
start, bucket by bucket, they are read faster, and those for a receiver that is away do not stand before the others."""
MOST_IN_PAUSE = 10_000
"""Such rows that one statement may find in their pause after a failure. While there are so many, no bounds are used either."""
Row = tuple[Any, ...]
"""The first eleven fields of ``Item``, ``id`` to ``processed_at``, in their order; of a numbered table also ``seq``."""
ROW_FIELDS = 11


class Behind(dict[int, int]):
    """Buckets, each with the id after which to read, while the bounds of the box are in use: delivered rows have left many
    index entries behind."""

    def __init__(self, after: Mapping[int, int], *, from_start: Collection[int] = ()) -> None:
        """Args:
        from_start: the buckets that would be read from the start if they had no bounds.
        """
        super().__init__(after)
        self.from_start = from_start


def without(buckets: Mapping[int, int], left_out: Collection[int]) -> dict[int, int]:
    """The other buckets, of the same kind."""
    kept = {bucket: after for bucket, after in buckets.items() if bucket not in left_out}
    if not isinstance(buckets, Behind):
        return kept
    return Behind(kept, from_start=[bucket for bucket in buckets.from_start if bucket in kept])


class Taken(NamedTuple):
    """What a claim got: its buckets and their due rows."""

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
    """Rows that could not be read, by id, with the reason; ``rows`` has those of their values that could be decoded."""
    exhausted: frozenset[int] | None = None
    """Granted buckets with nothing else due; None: those that returned fewer rows than asked for."""


class NextRows(NamedTuple):
    """What a claim would take."""

    granted: int
    """How many of its buckets nobody else holds."""
    bucket_of: Mapping[int, int]
    """The bucket of each of the next rows, by id."""


class BoxStatements(Protocol):
    """The statements of one box. They run on the cursor given and leave the transaction to the store."""

    strict_order: StrictOrder

    def errors_count(self, cursor: Cursor, item_id: int) -> int:
        """The ``errors_count`` of an existing row."""

    def poll(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        """Due rows, at most ``share`` of each bucket.

        Args:
            buckets: each with the id after which to read.
        """

    def poll_regular(self, cursor: Cursor, buckets: Mapping[int, int], share: int) -> list[PendingRow]:
        """As ``poll``, without the rows that have failed before."""

    def outlook(self, cursor: Cursor, buckets: Mapping[int, int]) -> list[tuple[int | None, float]]:
        """Buckets with a due row; and None with the seconds until the first delayed row is due.

        Args:
            buckets: each with the id after which to read.
        """

    def for_claim(self) -> Self:
        """The statements of one claim and its settlement, which may remember what the claim has read."""

    def claim(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        """Takes the locks that are free, until the transaction ends, and then reads the due rows, locked.

        A second statement reads the rows, after the one that took the locks: so it sees everything the previous holder
        committed before it released them.

        Args:
            buckets: each with the id after which to read.
            limit: of rows; divided among the buckets.
        """

    def claim_plain(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> Taken:
        """The same for a plain claim, which allows the rows to be deleted as they are read."""

    def hit_a_lock(self, error: Exception) -> bool:
        """Whether a claim failed because somebody else has locked one of its rows."""

    def next_rows(self, cursor: Cursor, buckets: Mapping[int, int], limit: int) -> NextRows:
        """Takes the locks of the buckets as a claim does, in a transaction that the caller undoes, and locks no row.

        Args: those of the claim.
        """

    def locked(self, cursor: Cursor, ids: Collection[int]) -> set[int]:
        """Those of the rows that others have locked. Keeps no row locked itself."""

    def wait_for(self, cursor: Cursor, row_id: int) -> None:
        """Waits a while for others to unlock the row. Nobody waits for us meanwhile, so no deadlock aborts their transactions."""

    def sizes(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, int]:
        """Bytes of these rows' payloads, by id; those without a payload are left out."""

    def payloads(self, cursor: Cursor, ids: Sequence[int]) -> dict[int, bytes]:
        """These rows' payloads, by id."""

    def bring_back(self, cursor: Cursor) -> None:
        """Undoes the deletion of a claim's rows and keeps its bucket locks. From here on others may change the rows again."""

    def waiting_keys(self, cursor: Cursor, items: Sequence[Item], upto: Mapping[int, int]) -> set[str]:
        """See ``PlainClaim.waiting_keys``."""

    def later_delivered(self, cursor: Cursor, items: Sequence[Item]) -> dict[int, int]:
        """The items that a delivered one of their key has overtaken: by id, the id of one that has."""

    def record(self, cursor: Cursor, settlement: Settlement) -> int:
        """Writes all outcomes; returns how many rows were changed."""

    def finish(self, cursor: Cursor, settlement: Settlement) -> int:
        """Writes all outcomes and commits, in one round trip where the driver can; returns how many rows were changed.

        If a statement fails, nothing is committed.
        """

    def seal(self, cursor: Cursor, buckets: Collection[int] | None = None) -> None:
        """Writes what must follow a claim's outcomes, before its transaction is committed.

        Args:
            buckets: only for these; None: for all.
        """

    def forget(self) -> None:
        """Forgets the outcomes that were recorded in the current transaction: they have been undone."""

    def hold_again(self, cursor: Cursor, buckets: Sequence[int]) -> list[int]:
        """Takes a claim's locks again after its transaction was rolled back; returns the buckets that nobody else has taken."""

    def hold_pending(self, cursor: Cursor, ids: Sequence[int]) -> list[int]:
        """Locks the rows that are still pending and returns their ids."""

    def check_at_once(self, cursor: Cursor) -> None:
        """Has what is only checked at the commit checked now, and by each later statement of the transaction."""

    def unlock(self, cursor: Cursor, buckets: Sequence[int]) -> None:
        """Frees the locks after the transaction, on databases where its end does not free them."""

    def anchor(self, cursor: Cursor) -> None:
        """Marks the transaction before a handler's session joins it, on databases that may end it without being asked to."""

    def take_back(self, cursor: Cursor) -> None:
        """Prepares for outcomes after a handler's session has used the transaction.

        Undoes what the handlers set (roles, paths, limits), so that it cannot affect the outcomes.

        Raises:
            StoreUnavailable: the transaction is not the one that was marked. Or the driver's error, which says the same.
        """

    def clean(self, cursor: Cursor) -> bool:
        """After a transaction that a handler's session used, clears what the handlers left on the connection.

        False if only a new connection would be clean.
        """

    def pending_in_log(self, cursor: Cursor, most: int) -> Count:
        """How many rows of the box's log, if it has one, no delivery has passed; see ``SqlHistory.pending_in_log``."""

    def unread_since(self, cursor: Cursor) -> datetime | None:
        """``created_at`` (zone UTC) of the oldest such row, as far as a look at each bucket's first ones tells."""

    def oldest_pending(self, cursor: Cursor, buckets: Mapping[int, int]) -> datetime | None:
        """Since when (zone UTC) the row has waited that has waited longest; see ``HistoryStore.oldest_pending``.

        Args:
            buckets: each with the id after which to read.
        """

    def oldest(self, cursor: Cursor, statuses: Sequence[int]) -> datetime | None:
        """Since when (zone UTC) the oldest of the first rows with these statuses is kept: ``HistoryStore.oldest_finished``."""

    def delete(
        self, cursor: Cursor, statuses: Sequence[int], created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """Deletes finished rows of a span of time, at most ``limit``; see ``HistoryStore.delete_finished``."""

    def sweep(self, cursor: Cursor, before: Mapping[int, datetime], after: int, limit: int) -> tuple[int, int | None]:
        """Deletes the old ones among the next rows by id, at most ``limit``; returns how many, and the last id it read."""
