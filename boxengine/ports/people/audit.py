"""What the audit reads: a box's whole table, the topics it was sent to, and a place to match the two."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.message import ReceivedMessage


class Replayed(IntEnum):
    """What a replay has to do with a row, as its header ``Replay-Of`` shows."""

    NO = 0
    COPY = 1
    """The row is a copy of a delivered one."""
    AGAIN = 2
    """The row itself went out again, or is about to: its ``processed_at`` is not that of its first delivery."""


class AuditedRow(NamedTuple):
    """The columns that the checks by key read. Moments are UTC without a time zone, which drivers create fastest."""

    id: ItemId
    event_key: str
    bucket: int
    status: int
    may_wait: bool
    """Whether an attempt has failed or the item was delayed: without strict order, later items may overtake it."""
    processed_at: datetime | None
    created_at: datetime
    seq: int | None
    replayed: int
    """A ``Replayed``."""


class Twins(NamedTuple):
    """Rows that share a value that should be unique."""

    column: str
    value: str
    times: int
    first_id: ItemId
    last_id: ItemId
    event_key: str


class LastDelivered(NamedTuple):
    """For one bucket: the highest delivered id, and when a row was last delivered (UTC, without a time zone)."""

    id: ItemId
    at: datetime


class RowMark(NamedTuple):
    """The values by which a row is compared with its message."""

    id: ItemId
    uuid: str
    status: int
    event_name: str | None
    created_at: datetime
    """UTC, without a time zone."""
    own_identity: bool
    """Whether its messages carry its uuid as ``Idempotency-Key``. Those of a copy may carry its original's."""


class AuditStore(Protocol):
    """A box's whole table, in pages, each in a short transaction of its own. ``since`` leaves out rows created before it.

    Every method raises ``StoreUnavailable`` if the database does not answer.
    """

    def now(self) -> datetime:
        """The time by the database's clock, which sets the moments of rows; zone UTC."""

    def numbered(self, box: Box) -> bool:
        """Whether the rows have gapless numbers per key."""

    def by_key(self, box: Box, *, since: datetime | None) -> Iterator[Sequence[AuditedRow]]:
        """All rows, grouped by key, the highest id of a key first.

        So of two rows of a key the later one is read first: what is known of its delivery is older than what is known of
        the other one. Rows of keys that the database considers equal may be mixed.

        Raises:
            BoxError: the rows cannot be sorted, because temporary files cannot be written.
        """

    def by_id(self, box: Box, *, since: datetime | None) -> Iterator[Sequence[RowMark]]:
        """All rows, the lowest id first."""

    def twins(self, box: Box, *, since: datetime | None, limit: int) -> list[Twins]:
        """Rows that share a uuid or a dedup_key, at most ``limit`` groups of each."""

    def last_delivered(self, box: Box, buckets: Sequence[int]) -> Mapping[int, LastDelivered]:
        """One for each bucket that still has delivered rows."""


class TopicLosses(NamedTuple):
    """Which messages of the topics the broker may have deleted."""

    complete_from: datetime | None
    """Messages sent before this moment may be gone; None: none are."""
    compacted: bool
    """Whether only the last message of each key is kept."""


class TopicLog(Protocol):
    """The messages of some topics from their beginning to their end. Used once, by one thread.

    Methods raise ``SourceUnavailable`` if the broker does not answer.
    """

    def measure(self) -> int:
        """Notes where the topics end now; returns roughly how many messages there are.

        Raises:
            BoxError: a topic does not exist.
        """

    def read(self) -> Iterator[Sequence[ReceivedMessage]]:
        """The messages committed before ``measure``, in pages, each partition in its order."""

    def losses(self) -> TopicLosses:
        """Known once everything has been read."""

    def close(self) -> None:
        """Frees what it holds."""


class RowTrace(NamedTuple):
    """The part of a row that is compared with messages."""

    uuid: str
    id: ItemId
    awaited: bool
    """Whether the row must have a message."""
    created: int
    """Unix seconds."""


class Trace(NamedTuple):
    """The part of one of the box's messages that is compared with rows and other messages."""

    uuid: str
    """Its ``Idempotency-Key``."""
    id: ItemId | None
    """Its ``Sequence-ID``; None if that is not a number."""
    key: bytes | None
    partition: int
    """The number of its topic and partition among all that are read."""
    offset: int
    created: int
    """Unix seconds."""
    repetition: bool = False
    """Whether a replay sent it: it shows that the item arrived, and is neither a duplicate nor out of order."""
    topic: int = 0
    """The number of its topic among all that are read."""


class Mismatch(NamedTuple):
    """A uuid that does not have exactly one row, and one message in each topic that has any."""

    uuid: str
    row_id: ItemId | None
    awaited: bool
    """Whether the row must have a message."""
    messages: int
    """Without repetitions."""
    topics: int
    """How many topics they are in. Where a box feeds several, each has one."""
    message_id: ItemId | None
    key: bytes | None
    created: int
    """When the row, or without a row the message, was created; unix seconds."""
    partition: int | None
    offset: int | None
    """The offset of one of the messages; None: there is none, not even a repetition."""


class FirstSending(NamedTuple):
    """Where an item first appears in one partition."""

    key: bytes
    partition: int
    id: ItemId
    offset: int


class Matching(Protocol):
    """Sorts rows and messages, which may not fit into memory. Add everything first, then read the results."""

    def add_rows(self, rows: Iterable[RowTrace]) -> None:
        """Rows in any order."""

    def add_messages(self, traces: Iterable[Trace]) -> None:
        """Messages in any order."""

    def mismatches(self) -> Iterator[Mismatch]:
        """All uuids with a message but no row, with no message although one is awaited, or with several messages in one topic."""

    def first_sendings(self) -> Iterator[FirstSending]:
        """Sorted by key, within a key by partition, and within a partition by id, the highest first.

        Messages without a key or an id are left out.
        """

    def close(self) -> None:
        """Frees what it holds."""
