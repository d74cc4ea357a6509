"""The sources of an inbox's items, and the place for messages that cannot become items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.message import ReceivedMessage

TopicPartition = tuple[str, int]


class Consumed(NamedTuple):
    """Counts for one batch's messages of one topic's partition."""

    messages: int
    """All of them: new items, duplicates and dead letters."""
    duplicates: int = 0
    """Stored before, or twice in the batch."""
    dead_letters: int = 0
    contradictions: int = 0
    """Duplicates whose payload differs from that of the stored item."""


class MessageSource(Protocol):
    """Messages of a partitioned log, as one consumer of a group sees them. Used by one thread; any thread may call ``check``.

    A message is done once it is acknowledged. Until then it is received again after ``put_back``, after a restart, and by
    the consumer that takes over its partition. Methods raise ``SourceUnavailable`` if the broker does not answer.
    """

    def receive(self, limit: int, *, wait: timedelta) -> Sequence[ReceivedMessage]:
        """Up to ``limit`` messages, each partition in its order; waits up to ``wait`` for the first."""

    def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        """These messages are stored for good. Messages of partitions that others have taken over meanwhile are left to them."""

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """These messages are not stored. They are received again, before any later ones of their partitions.

        A halted partition continues from there, or from an earlier message that was put back and has not come again.
        """

    def halt(self, message: ReceivedMessage) -> None:
        """Holds the message's partition back, from that message on, until it is put back or the partition moves."""

    def lags(self) -> Mapping[TopicPartition, int]:
        """How many messages of each owned partition are not acknowledged yet, as far as is known locally; contacts no broker."""

    def check(self) -> None:
        """Raises if the broker is known not to answer; does not contact it."""

    def close(self) -> None:
        """Leaves the group; acknowledgements stay valid."""


class InboxTransaction(Protocol):
    """One open transaction of the database that holds the inbox."""

    session: Any
    """The object that items are created through (a SQLAlchemy ``Connection``)."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Rolls back what its block wrote if the block raises.

        Raises:
            InvalidItem: the database refuses what was written, and always will: it breaks a constraint, or a value is too long.
        """

    def reject(self, item_id: ItemId, reason: str) -> None:
        """Marks a pending row that was never tried as failed, with this reason as its error log.

        Only for a row that this transaction inserted: an earlier row may be valid.
        """

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """The options of the rows with these keys, by key; empty if the table has no such keys or no options."""

    def stored_payloads(self, item_ids: Sequence[ItemId]) -> Mapping[ItemId, bytes]:
        """The payloads of these rows, as far as this transaction sees them."""


class Inbox(Protocol):
    """Stores received messages. Methods raise ``StoreUnavailable`` if the database does not answer."""

    def columns(self, box: Box) -> frozenset[str]:
        """The columns of the box's table.

        Raises:
            SchemaMismatch: the table does not exist, or none of its columns can identify a repeated message.
        """

    def transaction(self, box: Box) -> AbstractContextManager[InboxTransaction]:
        """Commits at the end of the block, and rolls back if it raises."""


class DeadLetters(Protocol):
    """Stores messages that cannot become items of their box."""

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:
        """Stores the message for good, at once or when the transaction commits.

        False: a row with its ``dedup_key`` exists already, so it counts as a repetition and nothing was written.

        Raises:
            InvalidItem: it cannot be stored as a dead letter either.
            GraveUnavailable: the place for dead letters does not answer, or refuses it. The caller must try again later.
            StoreUnavailable: the database does not answer.
        """
