"""Consuming: stores each of a broker's messages once, as a row of an inbox.

A batch of messages is stored in one database transaction, and acknowledged after the commit. Messages received again
after a crash in between are recognised by their ``dedup_key``. A message that cannot be stored is found by halving its
batch and goes to the dead letters; the others are stored in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.message import ReceivedMessage, item_attributes
from boxengine.engine.attempt import ends_the_worker, text_of
from boxengine.engine.consuming.dead_letters import only
from boxengine.engine.consuming.former_rows import FormerRows
from boxengine.engine.consuming.repetitions import Repetition, Repetitions
from boxengine.engine.running.outages import Outages
from boxengine.errors import GraveUnavailable, InvalidItem, SourceUnavailable, StoreUnavailable
from boxengine.ports import (
    Clock,
    Consumed,
    CreateBatch,
    DeadLetters,
    ErrorTracker,
    Inbox,
    InboxTransaction,
    MessageSource,
    Observer,
    TopicPartition,
    events,
)

NOW = timedelta(0)
LAG_EVERY = 15.0
"""Seconds between two reports of the lag."""
SHARE = 3
"""An attempt to store a dead letter blocks all partitions, so the pause before the next is this many times as long."""
LONGEST_WAIT = 60.0
"""The longest pause between two attempts, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLimits:
    """How much the consumer takes at once."""

    batch_size: int = 500
    """Messages per transaction."""
    max_payload: int | None = None
    """Bytes; a larger message goes to the dead letters. None: no limit."""
    wait: timedelta = timedelta(seconds=0.5)
    """How long a turn waits for messages, and so how late it may notice that it should stop."""


class Consumer:
    """Feeds one inbox box from one source. Only one thread may take its turns."""

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
        rules: Mapping[str, Callable[[ReceivedMessage], Any]] | None = None,
        repetitions: Repetitions | None = None,
    ) -> None:
        """Args:
        repetitions: compares repeated messages with their rows; None: they are not compared.
        rules: functions that compute an item's attributes and override the message's own; one that
            returns None leaves its attribute unchanged.
        """
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
        self._rules = dict(rules or {})
        self._former = FormerRows()
        self._repetitions = repetitions
        self._waiting: dict[TopicPartition, _Waiting] = {}
        """Partitions that wait until their dead letter can be stored."""
        self._columns: frozenset[str] = frozenset()
        self._broker = f"kafka ({box.name})"

    def turn(self) -> timedelta:
        """Receives, stores and acknowledges one batch; returns how long to wait before the next."""
        try:
            return self._consume()
        finally:
            # Also, and above all, while nothing can be stored: that is when the lag grows.
            self._tell_lag()

    def _consume(self) -> timedelta:
        try:
            self._go_on_where_due()
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
            self._observer.see(events.Lagging(self._box, lags))
            self._tell_lag_at = now + LAG_EVERY

    def close(self) -> None:
        """Leaves the group."""
        self._source.close()

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────

    def _store(self, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Stores the messages; returns them without those of partitions that had to be halted."""
        try:
            self._columns = self._inbox.columns(self._box)
            while messages:
                try:
                    self._commit(messages)
                except _Unstorable as stop:
                    messages = self._halted(stop.message, stop.reason, messages)
                except _Unburied as stop:
                    messages = self._put_off(stop, messages)
                else:
                    break
        except BaseException:
            self._source.put_back(messages)
            raise
        self._passed(messages)
        return messages

    def _commit(self, messages: Sequence[ReceivedMessage]) -> None:
        """Stores every message in one transaction, as an item of the box or as a dead letter."""
        began, tally = self._clock.monotonic(), _Tally()
        with self._inbox.transaction(self._box) as transaction:
            former = self._former.among(transaction, messages)
            tally.duplicates += former
            self._insert(transaction, [each for each in messages if each not in former] if former else messages, tally)
        self._former.committed(messages, former)
        if self._repetitions is not None:
            self._repetitions.tell(tally.contradictions)
        self._observer.see(
            events.MessagesStored(self._box, tally.counts(messages), seconds=self._clock.monotonic() - began)
        )
        for message, reason in tally.buried:
            self._track(
                f"message {message.place} went to the dead letters of {self._box.name}: {reason}",
                box_name=self._box.name,
                topic=message.topic,
                partition=message.partition,
                offset=message.offset,
            )

    def _insert(self, transaction: InboxTransaction, messages: Sequence[ReceivedMessage], tally: _Tally) -> None:
        if not messages:
            return
        known: set[ItemId] = set()
        try:
            with transaction.savepoint():
                batch = [self._attributes(message) for message in messages]
                ids = self._create_batch(transaction.session, batch, known=known)
        except InvalidItem as refusal:
            if len(messages) == 1:
                self._bury(transaction, messages[0], str(refusal), tally)
                return
            middle = len(messages) // 2
            self._insert(transaction, messages[:middle], tally)
            self._insert(transaction, messages[middle:], tally)
        else:
            self._take_note(transaction, list(_repeated(messages, ids, batch, known)), tally)

    def _take_note(self, transaction: InboxTransaction, repeated: Sequence[Repetition], tally: _Tally) -> None:
        tally.duplicates += [each.message for each in repeated]
        if repeated and self._repetitions is not None:
            tally.contradictions += self._repetitions.contradictions(transaction, repeated)

    def _attributes(self, message: ReceivedMessage) -> dict[str, Any]:
        try:
            attributes = item_attributes(message, max_payload=self._limits.max_payload)
            for name, rule in self._rules.items():
                value = rule(message)
                if value is not None:
                    attributes[name] = value
        except InvalidItem:
            raise
        except BaseException as error:
            if ends_the_worker(error):
                raise
            # The error would be raised again for ever, and block everything after this message.
            raise InvalidItem(f"no item can be built from it: {type(error).__name__}: {text_of(error)}") from error
        return only(self._columns, attributes)

    # ── what cannot be stored ────────────────────────────────────────────────────────────────────────

    def _bury(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str, tally: _Tally) -> None:
        began = self._clock.monotonic()
        try:
            if self._dead_letters.bury(transaction, message, reason):
                tally.buried.append((message, reason))
            else:
                tally.duplicates.append(message)
        except InvalidItem as error:
            raise _Unstorable(message, f"{reason}; nor can it be put away: {error}") from error
        except GraveUnavailable as error:
            raise _Unburied(message, f"{reason}; {error}", seconds=self._clock.monotonic() - began) from error

    def _halted(
        self, guilty: ReceivedMessage, reason: str, messages: Sequence[ReceivedMessage]
    ) -> Sequence[ReceivedMessage]:
        """Stops a partition at its bad message: skipping the message would lose it, waiting for it would block the others."""
        self._source.halt(guilty)
        self._outages.failed(
            self._partition_of(guilty),
            InvalidItem(
                f"stopped at offset {guilty.offset}, which can neither be stored nor put away: {reason}. "
                "Configure a dead_letter for this source and restart, or wait for the partition to move"
            ),
            box=self._box,
        )
        return _before(guilty, messages)

    def _put_off(self, stop: _Unburied, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Holds the partition at a message that cannot be stored as a dead letter now; the others go on."""
        message = stop.message
        self._source.halt(message)
        pause = self._outages.failed(
            self._partition_of(message),
            GraveUnavailable(f"waits at offset {message.offset}, which cannot be stored: {stop.reason}"),
            box=self._box,
        )
        wait = min(LONGEST_WAIT, max(pause, SHARE * stop.seconds))
        self._waiting[message.topic, message.partition] = _Waiting(message, self._clock.monotonic() + wait)
        return _before(message, messages)

    def _go_on_where_due(self) -> None:
        for wait in self._waiting.values():
            if wait.until is not None and self._clock.monotonic() >= wait.until:
                self._source.put_back([wait.message])
                wait.until = None

    def _passed(self, stored: Sequence[ReceivedMessage]) -> None:
        """Ends the waiting of partitions whose dead letter has been stored."""
        for message in stored if self._waiting else ():
            wait = self._waiting.get((message.topic, message.partition))
            if wait is not None and message.offset >= wait.message.offset:
                del self._waiting[message.topic, message.partition]
                self._outages.worked(self._partition_of(message))

    def _partition_of(self, message: ReceivedMessage) -> str:
        return f"consuming {message.topic}[{message.partition}] for {self._box.name}"


def _before(guilty: ReceivedMessage, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
    """The messages that can be stored while the bad message's partition stops at it."""
    partition = (guilty.topic, guilty.partition)
    return [
        message
        for message in messages
        if (message.topic, message.partition) != partition or message.offset < guilty.offset
    ]


@dataclass(slots=True)
class _Waiting:
    message: ReceivedMessage
    until: float | None
    """Monotonic time of the next attempt; None: one is being made."""


@dataclass(slots=True)
class _Tally:
    """Counts a transaction's messages that were not simply inserted."""

    buried: list[tuple[ReceivedMessage, str]] = field(default_factory=list)
    duplicates: list[ReceivedMessage] = field(default_factory=list)
    contradictions: list[Repetition] = field(default_factory=list)

    def counts(self, messages: Sequence[ReceivedMessage]) -> dict[TopicPartition, Consumed]:
        duplicates = _by_partition(self.duplicates)
        buried = _by_partition([message for message, _ in self.buried])
        wrong = _by_partition([each.message for each in self.contradictions])
        return {
            partition: Consumed(count, duplicates[partition], buried[partition], wrong[partition])
            for partition, count in _by_partition(messages).items()
        }


def _by_partition(messages: Sequence[ReceivedMessage]) -> Counter[TopicPartition]:
    return Counter((message.topic, message.partition) for message in messages)


def _repeated(
    messages: Sequence[ReceivedMessage], ids: Sequence[ItemId], batch: Sequence[Mapping[str, Any]], known: set[ItemId]
) -> Iterator[Repetition]:
    """The messages whose row existed already, in the table or earlier among these."""
    seen = set(known)
    for message, id_, attributes in zip(messages, ids, batch, strict=False):  # a create middleware may leave some out
        if id_ in seen:
            yield Repetition(message, id_, attributes)
        seen.add(id_)


class _Unstorable(Exception):
    def __init__(self, message: ReceivedMessage, reason: str) -> None:
        super().__init__(reason)
        self.message = message
        self.reason = reason


class _Unburied(Exception):
    def __init__(self, message: ReceivedMessage, reason: str, *, seconds: float) -> None:
        super().__init__(reason)
        self.message = message
        self.reason = reason
        self.seconds = seconds
        """How long the failed attempt took."""
