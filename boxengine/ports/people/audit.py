"""What the audit reads: a box's whole table, the topic it was sent to, and a place to match the two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.message import ReceivedMessage


class AuditedRow(NamedTuple):
    """What the checks by key look at. Moments are UTC and do not say so: drivers make those soonest."""

    id: ItemId
    event_key: str
    bucket: int
    status: int
    may_wait: bool
    """An attempt at it has failed, or it was delayed: without strict order later items may go first."""
    processed_at: datetime | None
    created_at: datetime
    seq: int | None


class Twins(NamedTuple):
    """Rows that share what should be unique."""

    column: str
    value: str
    times: int
    first_id: ItemId
    last_id: ItemId
    event_key: str


class LastDelivered(NamedTuple):
    """Of one bucket: the highest id that was delivered, and when something last was (UTC, without saying so)."""

    id: ItemId
    at: datetime


class RowMark(NamedTuple):
    """What a row is compared with its message by."""

    id: ItemId
    uuid: str
    status: int
    event_name: str | None
    created_at: datetime
    """UTC, without saying so."""


class AuditStore(Protocol):
    """A box's whole table, in pages, each in a short transaction of its own. ``since`` leaves out what was created before.

    Every method raises ``StoreUnavailable`` where the database does not answer.
    """

    def numbered(self, box: Box) -> bool:
        """Whether its rows carry gapless numbers per key."""

    def by_key(self, box: Box, *, since: datetime | None) -> Iterator[Sequence[AuditedRow]]:
        """All rows, those of a key together, the latest id first.

        So of two rows of a key the later one is read first: that it was delivered is then known of an earlier moment
        than how the other one is. Keys that the database takes for equal may come mixed.

        Raises:
            BoxError: the rows cannot be sorted for want of temporary files.
        """

    def by_id(self, box: Box, *, since: datetime | None) -> Iterator[Sequence[RowMark]]:
        """All rows, the lowest id first."""

    def twins(self, box: Box, *, since: datetime | None, limit: int) -> list[Twins]:
        """Rows that share a uuid or a dedup_key, at most so many groups of each."""

    def last_delivered(self, box: Box, buckets: Sequence[int]) -> Mapping[int, LastDelivered]:
        """Those of the buckets of which anything delivered is still there."""


class TopicLosses(NamedTuple):
    """What the broker may have deleted of the topics."""

    complete_from: datetime | None
    """What was sent before this moment may be gone; None: nothing is."""
    compacted: bool
    """Of a key's messages only the last is kept."""


class TopicLog(Protocol):
    """The messages of some topics from their beginning to their end. Used once, by one thread.

    Methods raise ``SourceUnavailable`` where the broker does not answer.
    """

    def measure(self) -> int:
        """Takes note of the end; about how many messages there are.

        Raises:
            BoxError: there is no such topic.
        """

    def read(self) -> Iterator[Sequence[ReceivedMessage]]:
        """What was committed until ``measure``, in pages, each partition in its order."""

    def losses(self) -> TopicLosses:
        """Known once all is read."""

    def close(self) -> None:
        """Frees what it holds."""


class RowTrace(NamedTuple):
    """A row as it is compared with messages."""

    uuid: str
    id: ItemId
    awaited: bool
    """Whether there must be a message."""
    created: int
    """Unix seconds."""


class Trace(NamedTuple):
    """One message of the box as it is compared with others."""

    uuid: str
    """Its ``Idempotency-Key``."""
    id: ItemId | None
    """Its ``Sequence-ID``; None where that is no number."""
    key: bytes | None
    partition: int
    """Number of topic and partition among those that are read."""
    offset: int
    created: int
    """Unix seconds."""


class Mismatch(NamedTuple):
    """A uuid of which there is not one row and one message."""

    uuid: str
    row_id: ItemId | None
    awaited: bool
    """Whether the row must have a message."""
    messages: int
    message_id: ItemId | None
    key: bytes | None
    created: int
    """Of the row, else of the message; unix seconds."""
    partition: int | None
    offset: int | None
    """Of one of the messages."""


class FirstSending(NamedTuple):
    """Where an item came first within one partition."""

    key: bytes
    partition: int
    id: ItemId
    offset: int


class Matching(Protocol):
    """Sorts rows and messages, which may be many more than memory holds. First everything goes in, then it comes out."""

    def add_rows(self, rows: Iterable[RowTrace]) -> None:
        """Rows in any order."""

    def add_messages(self, traces: Iterable[Trace]) -> None:
        """Messages in any order."""

    def mismatches(self) -> Iterator[Mismatch]:
        """All uuids of which there is a message and no row, no message though one is awaited, or several messages."""

    def first_sendings(self) -> Iterator[FirstSending]:
        """Keys one after the other, within a key partition by partition, within that the highest id first.

        Messages without a key or an id are left out.
        """

    def close(self) -> None:
        """Frees what it holds."""
