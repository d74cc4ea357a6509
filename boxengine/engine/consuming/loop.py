"""Consuming: stores each of a broker's messages once, as a row of an inbox.

A batch of messages is stored in one database transaction, and acknowledged after the commit. Messages received again
after a crash in between are recognised by their ``dedup_key``. A message that cannot be stored is found by halving its
batch and goes to the dead letters; the others are stored in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.message import ReceivedMessage, item_attributes
from boxengine.engine.attempt import ends_the_worker, text_of
from boxengine.engine.consuming.dead_letters import only, reason_in
from boxengine.engine.consuming.former_rows import FormerRows
from boxengine.engine.consuming.repetitions import Repetition, Repetitions
from boxengine.engine.consuming.rules import Rules, ruled
from boxengine.engine.consuming.stopped import StoppedPartitions, Unburied, Unstorable
from boxengine.engine.consuming.tally import Tally
from boxengine.engine.running.outages import Outages
from boxengine.errors import GraveUnavailable, InvalidItem, SourceUnavailable, StoreUnavailable
from boxengine.ports import (
    Clock,
    CreateBatch,
    DeadLetters,
    ErrorTracker,
    Inbox,
    InboxTransaction,
    MessageSource,
    Observer,
    events,
)

NOW = timedelta(0)
LAG_EVERY = 15.0
"""Seconds between two reports of the lag."""
PATIENCE = 30.0
"""Seconds of failed attempts to store dead letters after which a turn tries no other. Each partition may have one, and together
they would take longer than the group waits for the consumer's next poll."""


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
        rules: Rules | None = None,
        repetitions: Repetitions | None = None,
    ) -> None:
        """Args:
        rules: functions that compute an item's attributes and override the message's own; one that returns None
            leaves its attribute unchanged.
        repetitions: compares repeated messages with their rows; None: they are not compared.
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
        self._in_vain = 0.0
        """Seconds of this turn's failed attempts to store dead letters."""
        self._limits = limits
        self._rules = dict(rules or {})
        self._former = FormerRows()
        self._repetitions = repetitions
        self._stopped = StoppedPartitions(box, source, outages=outages, clock=clock)
        self._columns: frozenset[str] = frozenset()
        self._broker = f"kafka ({box.name})"
        # By box: the database may refuse one table, and what other boxes store says nothing of that one.
        self._database = f"database ({box.name})"

    def turn(self) -> timedelta:
        """Receives, stores and acknowledges one batch; returns how long to wait before the next."""
        try:
            return self._consume()
        finally:
            # Also, and above all, while nothing can be stored: that is when the lag grows.
            self._tell_lag()

    def _consume(self) -> timedelta:
        try:
            self._stopped.go_on_where_due()
            messages = self._source.receive(self._limits.batch_size, wait=self._limits.wait)
            began = self._clock.monotonic()
            if messages:
                self._source.acknowledge(self._store(messages))
        except SourceUnavailable as error:
            return timedelta(seconds=self._outages.failed(self._broker, error, box=self._box, needed=True))
        except StoreUnavailable as error:
            return timedelta(seconds=self._outages.failed(self._database, error, box=self._box))
        self._outages.worked(self._broker)
        if messages:
            self._outages.worked(self._database, began=began)
        return NOW

    def _tell_lag(self) -> None:
        now = self._clock.monotonic()
        lags = self._source.lags() if now >= self._tell_lag_at else {}
        if lags:
            self._observer.see(events.Lagging(self._box, lags))
            self._stopped.tell(lags)
            self._tell_lag_at = now + LAG_EVERY

    def close(self) -> None:
        """Leaves the group."""
        self._source.close()

    # ── one batch ────────────────────────────────────────────────────────────────────────────────────

    def _store(self, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Stores the messages; returns them without those of partitions that had to be halted."""
        self._in_vain = 0.0
        try:
            self._columns = self._inbox.columns(self._box)
            while messages:
                try:
                    self._commit(messages)
                except Unstorable as stop:
                    messages = self._stopped.halt(stop, messages)
                except Unburied as stop:
                    messages = self._stopped.put_off(stop, messages)
                else:
                    break
        except BaseException:
            self._stopped.put_back(messages)
            raise
        self._stopped.passed(messages)
        return messages

    def _commit(self, messages: Sequence[ReceivedMessage]) -> None:
        """Stores every message in one transaction, as an item of the box or as a dead letter."""
        began = self._clock.monotonic()
        with self._inbox.transaction(self._box) as transaction:
            former = self._former.among(transaction, messages)
            new = [each for each in messages if each not in former] if former else messages
            tally = Tally(duplicates=list(former)) + self._inserted(transaction, new)
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

    def _inserted(self, transaction: InboxTransaction, messages: Sequence[ReceivedMessage]) -> Tally:
        """Inserts the messages; halves them where one is refused, until it is found and put away."""
        if not messages:
            return Tally()
        known: set[ItemId] = set()
        try:
            with transaction.savepoint():
                batch = [self._attributes(message) for message in messages]
                ids = self._create_batch(transaction.session, batch, known=known)
        except InvalidItem as refusal:
            if len(messages) == 1:
                return self._buried(transaction, messages[0], reason_in(refusal))
            middle = len(messages) // 2
            return self._inserted(transaction, messages[:middle]) + self._inserted(transaction, messages[middle:])
        return self._compared(transaction, list(_repeated(messages, ids, batch, known)))

    def _compared(self, transaction: InboxTransaction, repeated: Sequence[Repetition]) -> Tally:
        """Compares repeated messages with their rows."""
        duplicates = [each.message for each in repeated]
        if not repeated or self._repetitions is None:
            return Tally(duplicates=duplicates)
        return Tally(duplicates=duplicates, contradictions=self._repetitions.contradictions(transaction, repeated))

    def _attributes(self, message: ReceivedMessage) -> dict[str, Any]:
        try:
            attributes = item_attributes(
                message, max_payload=self._limits.max_payload, ruled=partial(ruled, rules=self._rules)
            )
        except InvalidItem:
            raise
        except BaseException as error:
            if ends_the_worker(error):
                raise
            # The error would be raised again each time, and block everything after this message.
            raise InvalidItem(f"no item can be built from it: {type(error).__name__}: {text_of(error)}") from error
        return only(self._columns, attributes)

    # ── what cannot be stored ────────────────────────────────────────────────────────────────────────

    def _buried(self, transaction: InboxTransaction, message: ReceivedMessage, reason: str) -> Tally:
        """Puts one message away as a dead letter, unless that has been done before.

        Raises:
            Unstorable: it cannot be put away either.
            Unburied: its dead letter cannot be stored now.
        """
        if self._in_vain >= PATIENCE:
            why = f"the dead letter was not tried: others have just taken {self._in_vain:.0f} s"
            raise Unburied(message, f"{reason}; {why}", seconds=self._in_vain)
        began = self._clock.monotonic()
        try:
            if self._dead_letters.bury(transaction, message, reason):
                return Tally(buried=[(message, reason)])
        except InvalidItem as error:
            raise Unstorable(message, f"{reason}; nor can it be put away: {error}") from error
        except GraveUnavailable as error:
            seconds = self._clock.monotonic() - began
            self._in_vain += seconds
            raise Unburied(message, f"{reason}; {error}", seconds=seconds) from error
        return Tally(duplicates=[message])


def _repeated(
    messages: Sequence[ReceivedMessage], ids: Sequence[ItemId], batch: Sequence[Mapping[str, Any]], known: set[ItemId]
) -> Iterator[Repetition]:
    """The messages whose row existed already, in the table or earlier among these."""
    seen = set(known)
    for message, id_, attributes in zip(messages, ids, batch, strict=False):  # a create middleware may leave some out
        if id_ in seen:
            yield Repetition(message, id_, attributes)
        seen.add(id_)
