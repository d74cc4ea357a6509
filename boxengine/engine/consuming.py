"""Consuming: messages of a broker become rows of an inbox, each once.

A batch of messages is stored in one database transaction, and acknowledged after its commit; what is received again
after a crash in between is known by its ``dedup_key``. A message that cannot be stored is found by halving its batch,
and goes to the dead letters; the others are stored in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from boxengine.domain.box import Box
from boxengine.domain.message import ReceivedMessage, item_attributes, remains
from boxengine.engine.outages import Outages
from boxengine.errors import InvalidItem, SourceUnavailable, StoreUnavailable
from boxengine.ports import (
    Clock,
    Consumed,
    DeadLetters,
    ErrorTracker,
    Inbox,
    InboxTransaction,
    MessageSource,
    Observer,
    TopicPartition,
)

NOW = timedelta(0)
LAG_EVERY = 15.0
"""Seconds between two words about the lag."""


class CreateBatch(Protocol):
    """Inserts items of one box and returns their ids in the order given (``Creator.create_batch``)."""

    def __call__(
        self, session: Any, batch: Sequence[Mapping[str, Any]], /, *, known: set[int] | None = None
    ) -> list[int]:
        """Args:
        known: takes in the ids of items that were there already.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLimits:
    """How much at once."""

    batch_size: int = 500
    """Messages per transaction."""
    max_payload: int | None = None
    """Bytes; a larger message goes to the dead letters. None: no limit."""
    wait: timedelta = timedelta(seconds=0.5)
    """For how long a turn waits for messages, which is also how late it may notice that it should stop."""


class Consumer:
    """Feeds one inbox box from one source. Its turn is taken by one thread."""

    def __init__(
        self,
        box: Box,
        source: MessageSource,
        *,
        inbox: Inbox,
        create_batch: CreateBatch,
        dead_letters: DeadLetters,
        outages: Outages,
        error_tracker: ErrorTracker,
        observer: Observer,
        clock: Clock,
        limits: ConsumeLimits,
    ) -> None:
        self._box = box
        self._source = source
        self._inbox = inbox
        self._create_batch = create_batch
        self._dead_letters = dead_letters
        self._outages = outages
        self._track = error_tracker
        self._observer = observer
        self._clock = clock
        self._tell_lag_at = 0.0
        self._limits = limits
        self._columns: frozenset[str] = frozenset()
        self._broker = f"kafka ({box.name})"

    def turn(self) -> timedelta:
        """Receives, stores and acknowledges one batch; how long to wait before the next."""
        try:
            return self._consume()
        finally:
            # Above all while nothing can be stored, for that is when the lag grows.
            self._tell_lag()

    def _consume(self) -> timedelta:
        try:
            messages = self._source.receive(self._limits.batch_size, wait=self._limits.wait)
            began = self._clock.monotonic()
            if messages:
                self._source.acknowledge(self._store(messages))
        except SourceUnavailable as error:
            return timedelta(seconds=self._outages.failed(self._broker, error, box=self._box))
        except StoreUnavailable as error:
            return timedelta(seconds=self._outages.failed("database", error, box=self._box))
        self._outages.worked(self._broker)
        if messages:
            self._outages.worked("database", began=began)
        return NOW

    def _tell_lag(self) -> None:
        now = self._clock.monotonic()
        lags = self._source.lags() if now >= self._tell_lag_at else {}
        if lags:
            self._observer.lagging(self._box, lags)
            self._tell_lag_at = now + LAG_EVERY

    def close(self) -> None:
        """Leaves the group."""
        self._source.close()

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────

    def _store(self, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Stores the messages and returns them, less those of partitions that had to be halted."""
        try:
            self._columns = self._inbox.columns(self._box)
            while messages:
                try:
                    self._commit(messages)
                except _Unstorable as stop:
                    messages = self._halted(stop.message, stop.reason, messages)
                else:
                    break
        except BaseException:
            self._source.put_back(messages)
            raise
        return messages

    def _commit(self, messages: Sequence[ReceivedMessage]) -> None:
        """One transaction: every message an item of the box, or a dead letter."""
        began, tally = self._clock.monotonic(), _Tally()
        with self._inbox.transaction(self._box) as transaction:
            self._insert(transaction, messages, tally)
        self._observer.consumed(self._box, tally.counts(messages), seconds=self._clock.monotonic() - began)
        for message, reason in tally.buried:
            self._track(
                f"message {message.place} went to the dead letters of {self._box.name}: {reason}",
                box_name=self._box.name,
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
            )

    def _insert(self, transaction: InboxTransaction, messages: Sequence[ReceivedMessage], tally: _Tally) -> None:
        known: set[int] = set()
        try:
            with transaction.savepoint():
                batch = [self._attributes(message) for message in messages]
                ids = self._create_batch(transaction.session, batch, known=known)
        except InvalidItem as refusal:
            if len(messages) == 1:
                self._bury(transaction, messages[0], str(refusal))
                tally.buried.append((messages[0], str(refusal)))
                return
            middle = len(messages) // 2
            self._insert(transaction, messages[:middle], tally)
            self._insert(transaction, messages[middle:], tally)
        else:
            tally.duplicates += _repeated(messages, ids, known)

    def _attributes(self, message: ReceivedMessage) -> dict[str, Any]:
        return only(self._columns, item_attributes(message, max_payload=self._limits.max_payload))

    # ── what cannot be stored ────────────────────────────────────────────────────────────────────────

    def _bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> None:
        try:
            self._dead_letters.bury(transaction, message, reason)
        except InvalidItem as error:
            raise _Unstorable(message, f"{reason}; nor can it be put away: {error}") from error

    def _halted(
        self, guilty: ReceivedMessage, reason: str, messages: Sequence[ReceivedMessage]
    ) -> Sequence[ReceivedMessage]:
        """Stops the guilty message's partition at it: skipping it would lose it, waiting for it would hold up the others."""
        self._source.halt(guilty)
        self._outages.failed(
            f"consuming {guilty.topic}[{guilty.partition}] for {self._box.name}",
            InvalidItem(
                f"stopped at offset {guilty.offset}, which can neither be stored nor put away: {reason}. "
                "Configure a dead_letter for this source and restart, or wait for the partition to move"
            ),
            box=self._box,
        )
        return [
            message
            for message in messages
            if (message.topic, message.partition) != (guilty.topic, guilty.partition) or message.offset < guilty.offset
        ]


@dataclass(slots=True)
class _Tally:
    """What became of the messages of one transaction that are not simply new."""

    buried: list[tuple[ReceivedMessage, str]] = field(default_factory=list)
    duplicates: list[ReceivedMessage] = field(default_factory=list)

    def counts(self, messages: Sequence[ReceivedMessage]) -> dict[TopicPartition, Consumed]:
        duplicates = _by_partition(self.duplicates)
        buried = _by_partition([message for message, _ in self.buried])
        return {
            partition: Consumed(count, duplicates[partition], buried[partition])
            for partition, count in _by_partition(messages).items()
        }


def _by_partition(messages: Sequence[ReceivedMessage]) -> Counter[TopicPartition]:
    return Counter((message.topic, message.partition) for message in messages)


def _repeated(messages: Sequence[ReceivedMessage], ids: Sequence[int], known: set[int]) -> Iterator[ReceivedMessage]:
    """Those whose row was there already, in the table or earlier among these."""
    seen = set(known)
    for message, id_ in zip(messages, ids, strict=False):  # a create middleware may have left some out
        if id_ in seen:
            yield message
        seen.add(id_)


class _Unstorable(Exception):
    def __init__(self, message: ReceivedMessage, reason: str) -> None:
        super().__init__(reason)
        self.message = message
        self.reason = reason


# ── where dead letters go ────────────────────────────────────────────────────────────────────────────


class FailedRows:
    """``DeadLetters`` in the box itself, as failed rows: where nothing else is configured."""

    def __init__(self, box: Box, *, create_batch: CreateBatch, inbox: Inbox) -> None:
        self._box = box
        self._create_batch = create_batch
        self._inbox = inbox

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> None:
        attributes = only(self._inbox.columns(self._box), remains(message))
        with transaction.savepoint():
            (item_id,) = self._create_batch(transaction.session, [attributes])
            transaction.reject(item_id, f"not processed: the message could not be stored as it is: {reason}")


class OtherBox:
    """``DeadLetters`` in a box of their own, in the same transaction, with the reason in their headers."""

    def __init__(self, box: Box, *, create_batch: CreateBatch, inbox: Inbox) -> None:
        self._box = box
        self._create_batch = create_batch
        self._inbox = inbox

    def bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> None:
        attributes = only(self._inbox.columns(self._box), remains(message))
        if "options" in attributes:
            options = attributes["options"]
            headers = options["headers"] | dict(reason_headers(message, reason))
            attributes["options"] = options | {"headers": headers}
        with transaction.savepoint():
            self._create_batch(transaction.session, [attributes])


def reason_headers(message: ReceivedMessage, reason: str) -> list[tuple[str, str]]:
    """What a dead letter carries beside the message's own headers."""
    return [
        ("Dead-Letter-Reason", reason),
        ("Dead-Letter-Topic", message.topic),
        ("Dead-Letter-Partition", str(message.partition)),
        ("Dead-Letter-Offset", str(message.offset)),
    ]


def only(columns: frozenset[str], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Those attributes for which there is a column. The payload has one in every table, under one name or another."""
    return {name: value for name, value in attributes.items() if name in columns or name == "payload"}
