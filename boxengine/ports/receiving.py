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
    """Messages out of a partitioned log, as one consumer of a group sees them. Used by one thread, ``check`` by any.

    A message counts as done once it is acknowledged; until then it comes again after ``put_back``, after a restart, and
    to whoever takes its partition over. Methods raise ``SourceUnavailable`` where the broker does not answer.
    """

    def receive(self, limit: int, *, wait: timedelta) -> Sequence[ReceivedMessage]:
        """Up to ``limit`` messages, each partition in its order; waits up to ``wait`` for the first."""

    def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        """These are stored for good. Those of partitions that others have taken over meanwhile are left to them."""

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """These are not stored: they will be received again, before any later ones of their partitions.

        A partition that was halted goes on from there.
        """

    def halt(self, message: ReceivedMessage) -> None:
        """Gives no more of the message's partition, from that message on, until it is put back or the partition moves."""

    def lags(self) -> Mapping[TopicPartition, int]:
        """How many messages of each owned partition are not acknowledged yet, by what is known locally; contacts no broker."""

    def check(self) -> None:
        """Raises if the broker is known not to answer; does not contact it."""

    def close(self) -> None:
        """Leaves the group; acknowledgements stay valid."""


class InboxTransaction(Protocol):
    """One open transaction of the database that holds the inbox."""

    session: Any
    """The object that items are created through (a SQLAlchemy ``Connection``)."""

    def savepoint(self) -> AbstractContextManager[None]:
        """Undoes what its block has written if the block raises.

        Raises:
            InvalidItem: the database refuses what was written, and would do so again: a constraint, a value too long.
        """

    def reject(self, item_id: ItemId, reason: str) -> None:
        """Makes a pending row that was never tried a failed one, with this reason as its error log.

        Only for a row that this transaction inserted: one that was there before may be a good one.
        """

    def stored_options(self, dedup_keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """The options of the rows with these keys, by key; nothing where the table has no such keys or no options."""

    def stored_payloads(self, item_ids: Sequence[ItemId]) -> Mapping[ItemId, bytes]:
        """The payloads of these rows, as far as this transaction sees them."""


class Inbox(Protocol):
    """Stores received messages. Methods raise ``StoreUnavailable`` if the database does not answer."""

    def columns(self, box: Box) -> frozenset[str]:
        """The columns of the box's table.

        Raises:
            SchemaMismatch: there is no such table, or no column of it can identify a repeated message.
        """

    def transaction(self, box: Box) -> AbstractContextManager[InboxTransaction]:
        """Commits at the end of the block, and rolls back if it raises."""


class DeadLetters(Protocol):
    """Stores messages that cannot become items of their box."""

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> bool:
        """Puts the message away for good, or lets that commit with the transaction.

        False: there is a row with its ``dedup_key`` already, so it counts as a repetition and nothing was written.

        Raises:
            InvalidItem: it cannot be put away either.
            GraveUnavailable: the place for it does not answer, or refuses it. The caller must try again later.
            StoreUnavailable: the database does not answer.
        """
