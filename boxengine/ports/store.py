"""The rows of all boxes, as the loops need them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    """Those with at least one due row."""
    next_in: timedelta | None
    """How long until the box's first delayed row reaches its ``available_at``; None if that is not known."""


class PlainClaim(Protocol):
    """One open transaction of the store, holding the locks of its buckets until it ends.

    Nobody else can record an outcome for these buckets while it is open. A plain claim can only be committed or left.
    """

    items: Sequence[Item]
    """The due rows of the granted buckets, locked, in id order within each bucket, at most the limit asked for."""

    refused: frozenset[int]
    """Buckets that somebody else holds; none of their rows are in ``items``."""

    exhausted: frozenset[int]
    """Granted buckets of which ``items`` holds every row that was due."""

    unreadable: Mapping[ItemId, str]
    """The items whose rows could not be read, by id, each with the reason. Such an item holds what could be read, and fails."""

    now: datetime
    """The store's clock when the claim was made, with zone UTC. Due times are computed against it."""

    def commit(self, settlement: Settlement) -> Unrecorded | None:
        """Writes all outcomes and ends the transaction, which frees the buckets.

        Returns what could not be recorded of single rows: a refused row repeats none of its neighbours.

        Raises:
            StoreUnavailable: nothing is known to be written; the rows count as pending.
        """


class Claim(PlainClaim, Protocol):
    """A claim whose transaction users' code may read and write in while it is open."""

    @property
    def session(self) -> Any:
        """The user's session on this very transaction (a SQLAlchemy ``Session``), made at first use."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Undoes what the block has written through ``session`` if the block raises; the claim goes on."""

    def later_delivered(self, items: Sequence[Item]) -> Mapping[ItemId, ItemId]:
        """The ids of those items of which a later one, of the same key and event name, has been delivered; each with its id."""


ClaimT_co = TypeVar("ClaimT_co", bound=PlainClaim, covariant=True)


class Claims(Protocol[ClaimT_co]):
    """Opens claims of one box, all of one kind. Made once and kept; one object serves all threads."""

    def open(self, buckets: Mapping[int, ItemId | None], limit: int) -> AbstractContextManager[ClaimT_co]:
        """Opens a transaction, takes the locks of the buckets without waiting for them, and reads their due rows.

        Leaving the context without ``commit`` undoes everything.

        Args:
            buckets: each with the id after which to read (None: from the start), which spares reading what was just settled.
            limit: of rows; divided among the buckets.

        Raises:
            StoreUnavailable: the database does not answer.
        """


class Store(Protocol):
    """The rows of all boxes. Every method raises ``StoreUnavailable`` where the database does not answer."""

    def poll(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """Due rows of these buckets, about ``limit`` at most, each bucket getting its fair share, in id order.

        Due means: pending, past its pause (``box.backoff``), past its ``available_at``, and not held back by strict order.
        Takes no locks; may read a replica.
        """

    def poll_regular(self, box: Box, buckets: Sequence[int], limit: int) -> list[PendingRow]:
        """As ``poll``, without the rows that have failed before."""

    def outlook(self, box: Box, buckets: Sequence[int]) -> Outlook:
        """Where anything is due, and when something will be. One round trip, cheap enough to be asked every second."""

    def pending(self, boxes: Sequence[Box]) -> frozenset[str]:
        """Names of those with at least one pending row, due or not. Few round trips, however many boxes there are."""

    def claims(self, box: Box) -> Claims[Claim]:
        """Claims in which users' code may take part: transports that take ``session=``, retry strategies."""

    def plain_claims(self, box: Box) -> Claims[PlainClaim]:
        """Claims in which no user's code takes part.

        As they open, the store may already write what a delivery of all rows would write, as long as ``commit`` and
        leaving do what they always do.
        """

    def ping(self) -> None:
        """Returns if the database answers."""


class Bounding(Protocol):
    """How far the buckets of a box are done, so that looks and claims need not begin at the first row; see ``domain.bounds``."""

    def advance(self, box: Box) -> Collection[int]:
        """Notes what has been done, if it is time to. To be called several times a second; nearly always it returns at once.

        Returns buckets in which a row has come back where all was done: they are worth a look.

        Raises:
            StoreUnavailable: the database does not answer.
        """

    def bounded(self, box: Box) -> bool:
        """Whether the store has bounds for such a box at all; if not, ``advance`` does nothing."""

    def read_from_start(self, box_name: str) -> None:
        """Makes the next look and the next claim begin at the first row, because rows have come back."""


class Swept(NamedTuple):
    """The result of a look at some rows."""

    deleted: int
    last_id: ItemId | None
    """The last id that was looked at; None: there was none, the table ends here."""


class HistoryStore(Protocol):
    """Looks at and deletes finished rows, for retention, status and metrics. Never in the path of a delivery."""

    def counts(self, box: Box) -> Mapping[int, int]:
        """Rows by status number. Counts the whole table: for people, not for metrics."""

    def oldest_pending(self, box: Box) -> datetime | None:
        """Since when (zone UTC) the pending row that has waited longest has been there: since its creation, or since its
        ``available_at`` where that is later. Rows that are delayed beyond now do not wait. None: nothing does.

        Cheap enough to be asked every few seconds: it looks at the first rows of each bucket only.
        """

    def unread_since(self, box: Box) -> datetime | None:
        """When (zone UTC) the oldest item was created that stands in the box's log and has not been passed. None: there is none,
        or no log.

        Cheap, as ``oldest_pending``.
        """

    def stranded_items(self, box: Box) -> int:
        """Pending rows in buckets that the box does not have, where no worker looks; from 10,000 on it counts no further."""

    def oldest_finished(self, box: Box, statuses: Sequence[int]) -> datetime | None:
        """``created_at`` of the first row, by id, with one of these statuses; may read a replica."""

    def delete_finished(
        self, box: Box, statuses: Sequence[int], *, created_from: datetime, created_before: datetime, limit: int
    ) -> int:
        """Deletes, in one transaction, at most ``limit`` such rows of that span of creation; returns how many.

        It need not find rows that stand, by id, far behind many others of their statuses: ``sweep_finished`` does.
        """

    def sweep_finished(self, box: Box, before: Mapping[int, datetime], *, after: ItemId | None, limit: int) -> Swept:
        """Looks at the next rows by id, a bounded number of them, and deletes the old among them in one transaction.

        Args:
            before: by status, the ``created_at`` from which on rows stay. Pending rows stay in any case.
            after: the id after which to look; None: from the start.
            limit: of rows to delete.
        """


class Turnover(NamedTuple):
    """What a pass did to the partitions of a log."""

    made: Sequence[str] = ()
    """Names of those made ahead."""
    dropped: Sequence[str] = ()
    """Names of those dropped."""
    deleted: int = 0
    """Rows that were removed with their partitions."""
    trouble: str | None = None
    """Why no partition of its own takes what is written now."""


class Partitions(Protocol):
    """The partitions of boxes with ``storage: log``."""

    def turn_over(self, box: Box, *, created_before: datetime) -> Turnover | None:
        """Makes partitions ahead, and removes those that every reader has passed and that hold no item created since.

        Waits for nobody's lock longer than a moment. None: the box has no log, or one without partitions.
        """


class Tables(Protocol):
    """The tables behind the boxes, which people may alter while a worker runs."""

    def look_again(self) -> Sequence[str]:
        """Finds out which known tables have changed, and works with them as they are from here on; names of their boxes.

        Cheap enough to be asked every half minute.

        Raises:
            StoreUnavailable: the database does not answer.
        """
