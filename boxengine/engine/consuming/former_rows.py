"""Recognises rows that an earlier version stored under another key, so that an upgrade does not store their messages again.

Messages without a key of their own used to be identified by ``topic:partition:offset`` alone. Such a row is recognised by
that key together with its message's time, because a topic that is created again reuses its offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boxengine.domain.item import rfc3339
from boxengine.domain.message import ReceivedMessage, former_identity
from boxengine.ports import InboxTransaction, TopicPartition


class FormerRows:
    """Queries the table where a partition begins or its offsets jump, and continues only as long as it finds such rows.

    A partition that is read without a gap costs no query.
    """

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}
        """The next offset of a partition read without a gap: nobody else can have stored the message there."""

    def among(self, transaction: InboxTransaction, messages: Sequence[ReceivedMessage]) -> frozenset[ReceivedMessage]:
        """The messages that have such a row."""
        keys = dict(self._suspects(messages))
        if not keys:
            return frozenset()
        stored = transaction.stored_options(list(keys.values()))
        return frozenset(message for message, key in keys.items() if _is_of(message, stored.get(key)))

    def committed(self, messages: Sequence[ReceivedMessage], found: frozenset[ReceivedMessage]) -> None:
        """The batch has been committed: remembers how far each partition is now."""
        for message in messages:
            self._next[message.topic, message.partition] = message.offset + 1
        for message in found:
            # More such rows may follow.
            self._next.pop((message.topic, message.partition), None)

    def _suspects(self, messages: Sequence[ReceivedMessage]) -> list[tuple[ReceivedMessage, str]]:
        unsure: dict[TopicPartition, bool] = {}
        suspects = []
        for message in messages:
            partition = (message.topic, message.partition)
            if partition not in unsure:
                unsure[partition] = self._next.get(partition) != message.offset
            if unsure[partition] and (key := former_identity(message)) is not None:
                suspects.append((message, key))
        return suspects


def _is_of(message: ReceivedMessage, options: Mapping[str, Any] | None) -> bool:
    kafka = None if options is None else options.get("kafka")
    if not isinstance(kafka, Mapping):
        return False
    moment = None if message.timestamp is None else rfc3339(message.timestamp)
    return (kafka.get("offset"), kafka.get("timestamp")) == (message.offset, moment)
