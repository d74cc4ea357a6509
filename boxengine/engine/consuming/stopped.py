"""Partitions that stop at a message which can be stored neither as an item nor as a dead letter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from boxengine.domain.box import Box
from boxengine.domain.message import ReceivedMessage
from boxengine.engine.running.outages import Outages
from boxengine.errors import GraveUnavailable, InvalidItem
from boxengine.ports import Clock, MessageSource, TopicPartition

SHARE = 3
"""An attempt to store a dead letter blocks all partitions, so the pause before the next is this many times as long."""
LONGEST_WAIT = 60.0
"""The longest pause between two attempts, in seconds."""


class Unstorable(Exception):
    """A message that can be stored nowhere, whatever the outcome of other attempts."""

    def __init__(self, message: ReceivedMessage, reason: str) -> None:
        super().__init__(reason)
        self.message = message
        self.reason = reason


class Unburied(Exception):
    """A message whose dead letter cannot be stored just now."""

    def __init__(self, message: ReceivedMessage, reason: str, *, seconds: float) -> None:
        super().__init__(reason)
        self.message = message
        self.reason = reason
        self.seconds = seconds
        """How long the failed attempt took."""


class StoppedPartitions:
    """The stopped partitions of one source. Used by the thread that consumes it."""

    def __init__(self, box: Box, source: MessageSource, *, outages: Outages, clock: Clock) -> None:
        self._box = box
        self._source = source
        self._outages = outages
        self._clock = clock
        self._waiting: dict[TopicPartition, _Waiting] = {}
        """Partitions at a message that could not be stored, until it or a later one has been."""

    def halt(self, stop: Unstorable, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Stops a partition at its bad message: skipping the message would lose it, waiting for it would block the others.

        Returns the messages that can be stored while it stops.
        """
        guilty = stop.message
        self._source.halt(guilty)
        former = self._waiting.get((guilty.topic, guilty.partition))
        if former is not None and former.message.offset < guilty.offset:
            # Another worker got past the former message, and the partition came back: this stop is news.
            self._outages.worked(self._name_of(guilty))
        self._outages.failed(
            self._name_of(guilty),
            InvalidItem(
                f"stopped at offset {guilty.offset}, which can neither be stored nor put away: {stop.reason}. "
                "Configure a dead_letter for this source and restart"
            ),
            box=self._box,
        )
        self._waiting[guilty.topic, guilty.partition] = _Waiting(guilty, None)
        return _before(guilty, messages)

    def put_off(self, stop: Unburied, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
        """Holds the partition at a message whose dead letter cannot be stored now.

        Returns the messages that can be stored meanwhile.
        """
        message = stop.message
        self._source.halt(message)
        pause = self._outages.failed(
            self._name_of(message),
            GraveUnavailable(f"waits at offset {message.offset}, which cannot be stored: {stop.reason}"),
            box=self._box,
        )
        wait = min(LONGEST_WAIT, max(pause, SHARE * stop.seconds))
        self._waiting[message.topic, message.partition] = _Waiting(message, self._clock.monotonic() + wait)
        return _before(message, messages)

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Has the source give out these messages again, which are not stored.

        Their partitions run again, and come to the messages at which they waited by themselves. To go on there would skip these.
        """
        for message in messages if self._waiting else ():
            wait = self._waiting.get((message.topic, message.partition))
            if wait is not None:
                wait.until = None
        self._source.put_back(messages)

    def go_on_where_due(self) -> None:
        """Has the source give out again the messages whose wait is over."""
        for wait in self._waiting.values():
            if wait.until is not None and self._clock.monotonic() >= wait.until:
                self._source.put_back([wait.message])
                wait.until = None

    def tell(self, owned: Collection[TopicPartition]) -> None:
        """Tells again of the partitions that stand still here. What became of those that moved is known elsewhere."""
        for partition, wait in self._waiting.items():
            if partition in owned:
                self._outages.lasts(self._name_of(wait.message))

    def passed(self, stored: Sequence[ReceivedMessage]) -> None:
        """Ends the outage of partitions that got past the message at which they stopped."""
        for message in stored if self._waiting else ():
            wait = self._waiting.get((message.topic, message.partition))
            if wait is not None and message.offset >= wait.message.offset:
                del self._waiting[message.topic, message.partition]
                self._outages.worked(self._name_of(message))

    def _name_of(self, message: ReceivedMessage) -> str:
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
    """Monotonic time of the next attempt; None: the partition is on its way to one, or none will be made."""
