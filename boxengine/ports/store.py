"""The rows of all boxes, as the worker's loops need them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol, TypeVar

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Settlement, Unrecorded


class PendingRow(NamedTuple):
    """The part of a due row that a poll reads."""

    id: ItemId
    bucket: int
    errors_count: int


class Outlook(NamedTuple):
    """The result of a check of a box's buckets."""

    due: list[int]
    """The buckets with at least one due row."""
    next_in: timedelta | None
    """The time until the box's first delayed row reaches its ``available_at``; None: not known."""


class PlainClaim(Protocol):
    """One open transaction of the store, holding the locks of its buckets until it ends.

    Nobody else can record an outcome for these buckets while it is open. A plain claim can only be committed or left.
    """

    items: Sequence[Item]
    """The due rows of the granted buckets, locked, in id order within each bucket; at most ``limit``."""

    refused: frozenset[int]
    """Buckets that somebody else holds; none of their rows are in ``items``."""

    locked: frozenset[int]
    """The refused buckets that no worker holds: another transaction, such as one of the application, has locked a row in them."""

    exhausted: frozenset[int]
    """Granted buckets whose due rows are all in ``items``."""

    unreadable: Mapping[ItemId, str]
    """The reasons why rows could not be read, by item id. Such an item holds what could be read, and fails."""

    now: datetime
    """The store's clock when the claim was made, with zone UTC. Due times are computed against it."""

    def waiting_keys(self, items: Sequence[Item], upto: Mapping[int, ItemId]) -> Collection[str]:
        """Of the items' keys those for which an earlier item waits: it is pending and, unless order is strict, due.

        Args:
            upto: by bucket, the last id to look at.
        """

    def commit(self, settlement: Settlement) -> Unrecorded | None:
        """Writes all outcomes and ends the transaction, which frees the buckets.

        Returns what could not be recorded, row by row: a refused row does not make its neighbours go out again.

        Raises:
            StoreUnavailable: it is unknown whether anything was written; the rows count as pending.
        """


class Claim(PlainClaim, Protocol):
    """A claim in whose open transaction users' code may read and write."""

    @property
    def session(self) -> Any:
        """The user's session on this very transaction (a SQLAlchemy ``Session``), made at first use."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Rolls back what the block wrote through ``session`` if the block raises; the claim stays usable.

        Raises:
            TransactionLost: the claim does not: its transaction is gone. Otherwise what the block raised.
        """

    def later_delivered(self, items: Sequence[Item]) -> Mapping[ItemId, ItemId]:
        """For items with a later delivered one of the same key and event name: the id of that one, by the item's id.

        Copies that a replay has made do not count: they hold an older state.
        """


ClaimT_co = TypeVar("ClaimT_co", bound=PlainClaim, covariant=True)


class Claims(Protocol[ClaimT_co]):
    """Opens claims of one box, all of one kind. Made once and kept; one object serves all threads."""

    def open(self, buckets: Mapping[int, ItemId | None], limit: int) -> AbstractContextManager[ClaimT_co]:
        """Opens a transaction, takes the locks of the buckets without waiting for them, and reads their due rows.

        Leaving the context without ``commit`` undoes everything.

        Args:
            buckets: each with the id after which to read, so that rows just settled are not read again; None: from the start.
            limit: the most rows, divided among the buckets.

        Raises:
            StoreUnavailable: the database does not answer.
        """


class Store(Protocol):
    """The rows of all boxes. Every method raises ``StoreUnavailable`` if the database does not answer."""

    def poll(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """Due rows of these buckets, about ``limit`` at most, each bucket getting its fair share, in id order.

        Due means: pending, past its pause (``box.backoff``), past its ``available_at``, and not held back by strict order.
        Takes no locks; may read a replica.
        """

    def poll_regular(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """Like ``poll``, without the rows that have failed before."""

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        """Which buckets have due rows, and when the next row comes due. One round trip, cheap enough to be asked every second."""

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        """The names of the boxes with at least one pending row, due or not; also of those whose table cannot be used.

        Few round trips, however many tables there are; for a box with a log one more.
        """

    def claims(self, box: Box) -> Claims[Claim]:
        """Claims whose transaction users' code may use: transports that take ``session=``, retry strategies."""

    def plain_claims(self, box: Box) -> Claims[PlainClaim]:
        """Claims whose transaction no users' code uses.

        When one opens, the store may already write what a delivery of all rows would write, as long as ``commit`` and leaving
        the claim have their usual effects.
        """

    def locks_decide(self, box: Box) -> bool:
        """Whether all who deliver the box's items keep to the locks of its claims. False as long as that is not known.

        Answers at once: it asks nobody.
        """

    def ping(self) -> None:
        """Returns if the database answers."""


class Bounding(Protocol):
    """How far a box's buckets are done, so that looks and claims need not begin at the first row; see ``domain.bounds``."""

    def advance(self, box: Box) -> Collection[int]:
        """Records how far the buckets are done, if it is time to. Call it several times a second; it usually returns at once.

        Returns the buckets in which a row has come back among those that were done: they are worth a look.

        Raises:
            StoreUnavailable: the database does not answer.
        """

    def bounded(self, box: Box) -> bool:
        """Whether the store has bounds for this kind of box; if not, ``advance`` does nothing."""

    def read_from_start(self, box_name: str) -> None:
        """Makes the next look and the next claim begin at the first row, because rows have come back."""


class Swept(NamedTuple):
    """The result of a look at some rows."""

    deleted: int
    last_id: ItemId | None
    """The last id that was examined; None: there was none, because the table ends here."""


class HistoryStore(Protocol):
    """Reads and deletes finished rows, for retention, status and metrics. Never in the path of a delivery."""

    def counts(self, box: Box) -> Mapping[int, int]:
        """Rows by status number. Counts the whole table: for people, not for metrics."""

    def oldest_pending(self, box: Box) -> datetime | None:
        """Since when (zone UTC) the pending row that has waited longest has waited: since its creation, or since its
        ``available_at`` if that is later. Rows delayed beyond now do not count as waiting. None: no row waits.

        Cheap enough to be asked every few seconds, because it reads only the first rows of each bucket.
        """

    def unread_since(self, box: Box) -> datetime | None:
        """The creation time (zone UTC) of the oldest item in the box's log that has not been passed. None: there is no such
        item, or no log.

        As cheap as ``oldest_pending``.
        """

    def stranded_items(self, box: Box) -> int:
        """How many pending rows lie in buckets that the box does not have, where no worker looks; counts up to 10,000."""

    def now(self) -> datetime:
        """The time by the database's clock (zone UTC). What is old is decided by it, and not by that of one worker's machine."""

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        """Since when the oldest of the first rows with one of these statuses, by id, is kept; may read a replica.

        A delivered row is kept from its ``created_at`` on. A failed or discarded one is kept from its last attempt on, or from
        when it was discarded (``processed_at``), because it may have waited for long before.
        """

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """Deletes at most ``limit`` rows with these statuses and creation times, in one transaction; returns how many.

        As the creation time of a row counts what ``oldest_finished`` says.

        It need not find rows whose ids come after those of many others with their statuses: ``sweep_finished`` finds them.
        """

    def sweep_finished(self, box: Box, before: Mapping[int, datetime], *, after: ItemId | None, limit: int) -> Swept:
        """Examines a bounded number of the next rows by id, and deletes the old ones among them in one transaction.

        Args:
            before: by status, the creation time, as ``delete_finished`` counts it, from which on rows are kept. Pending rows are
                always kept.
            after: the id after which to begin; None: from the start.
            limit: the most rows to delete.
        """


class Turnover(NamedTuple):
    """What one call of ``turn_over`` did to the partitions of a log."""

    made: Sequence[str] = ()
    """The names of partitions created ahead."""
    dropped: Sequence[str] = ()
    """The names of dropped partitions."""
    deleted: int = 0
    """How many rows were removed with their partitions."""
    trouble: str | None = None
    """Why rows written now do not go to a partition of their own."""


class Partitions(Protocol):
    """The partitions of boxes with ``storage: log``."""

    def turn_over(
        self, box: Box, *, created_before: datetime, go_on: Callable[[], bool] = lambda: True
    ) -> Turnover | None:
        """Creates partitions ahead; drops those that every reader has passed and that hold no item created since that moment.

        Never waits for a lock longer than a moment. None: the box has no log, or one without partitions.

        Args:
            go_on: asked before each further partition, and not under a lock; False: the next call does the rest.
        """


class Tables(Protocol):
    """The tables behind the boxes, which people may alter while a worker runs."""

    def look_again(self) -> Sequence[str]:
        """Detects which known tables have changed, and uses their new shape from now on; returns the names of their boxes.

        Cheap enough to be asked every half minute.

        Raises:
            StoreUnavailable: the database does not answer.
        """
