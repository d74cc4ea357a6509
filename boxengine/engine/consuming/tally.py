"""What became of the messages of one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from boxengine.domain.message import ReceivedMessage
from boxengine.engine.consuming.repetitions import Repetition
from boxengine.ports import Consumed, TopicPartition


@dataclass(frozen=True, slots=True)
class Tally:
    """The messages of a transaction, or of a part of one, that were not simply inserted."""

    buried: Sequence[tuple[ReceivedMessage, str]] = ()
    """Messages that went to the dead letters, and why."""
    duplicates: Sequence[ReceivedMessage] = ()
    contradictions: Sequence[Repetition] = ()
    """Duplicates that do not say what their rows say."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            [*self.buried, *other.buried],
            [*self.duplicates, *other.duplicates],
            [*self.contradictions, *other.contradictions],
        )

    def counts(self, messages: Sequence[ReceivedMessage]) -> dict[TopicPartition, Consumed]:
        """What became of all these messages, by partition."""
        duplicates = _by_partition(self.duplicates)
        buried = _by_partition([message for message, _ in self.buried])
        wrong = _by_partition([each.message for each in self.contradictions])
        return {
            partition: Consumed(count, duplicates[partition], buried[partition], wrong[partition])
            for partition, count in _by_partition(messages).items()
        }


def _by_partition(messages: Sequence[ReceivedMessage]) -> Counter[TopicPartition]:
    return Counter((message.topic, message.partition) for message in messages)
