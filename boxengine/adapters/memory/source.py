"""A partitioned log in memory, for tests: a ``MessageSource`` over it, as one consumer that owns all partitions sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from boxengine.domain.message import ReceivedMessage
from boxengine.ports import TopicPartition


class MemorySource:
    """``MessageSource``; never waits."""

    def __init__(self, messages: Sequence[ReceivedMessage] = ()) -> None:
        self._log: dict[TopicPartition, list[ReceivedMessage]] = {}
        self._positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        """The next offset of each partition, as acknowledged."""
        self.halted: dict[TopicPartition, int] = {}
        """Offsets at which partitions stand still."""
        for message in messages:
            self._log.setdefault((message.topic, message.partition), []).append(message)

    def receive(self, limit: int, *, wait: timedelta) -> Sequence[ReceivedMessage]:  # noqa: ARG002 - the port's shape
        found: list[ReceivedMessage] = []
        for partition, log in self._log.items():
            end = self.halted.get(partition)
            start = self._positions.get(partition, self.committed.get(partition, 0))
            due = [each for each in log if start <= each.offset and (end is None or each.offset < end)]
            taken = due[: limit - len(found)]
            if taken:
                self._positions[partition] = taken[-1].offset + 1
            found += taken
        return found

    def acknowledge(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            self.committed[message.topic, message.partition] = message.offset + 1

    def put_back(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            partition = (message.topic, message.partition)
            self._positions[partition] = min(self._positions.get(partition, message.offset), message.offset)
            self.halted.pop(partition, None)

    def halt(self, message: ReceivedMessage) -> None:
        self.halted[message.topic, message.partition] = message.offset

    def lags(self) -> Mapping[TopicPartition, int]:
        return {
            partition: sum(message.offset >= self.committed.get(partition, 0) for message in log)
            for partition, log in self._log.items()
        }

    def check(self) -> None:
        """It is always there."""

    def close(self) -> None:
        """Forgets what is not acknowledged, and the halts."""
        self._positions.clear()
        self.halted.clear()
