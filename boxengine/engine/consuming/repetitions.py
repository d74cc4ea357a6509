"""Reports messages that repeat a key with another payload: they are dropped as duplicates, and people must know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.message import ReceivedMessage, brings_a_key
from boxengine.ports import Clock, ErrorTracker, InboxTransaction

TELL_EVERY = 60.0
"""Seconds between two lines about one box."""
BYTES_AT_ONCE = 8 * 1024 * 1024
"""Bytes of payloads that one query compares with stored ones."""


class Repetition(NamedTuple):
    """A message whose row existed already, and the row that it would have written."""

    message: ReceivedMessage
    item_id: ItemId
    attributes: Mapping[str, Any]


class Repetitions:
    """Compares repeated messages with their rows. A batch without repetitions costs nothing."""

    def __init__(self, box: Box, *, error_tracker: ErrorTracker, clock: Clock) -> None:
        self._box = box
        self._track = error_tracker
        self._clock = clock
        self._tell_at = 0.0
        self._untold = 0

    def contradictions(self, transaction: InboxTransaction, found: Sequence[Repetition]) -> list[Repetition]:
        """The repetitions whose payload differs from the stored one."""
        # A message without a key of its own is identified by its place and time, so it is the same message.
        keyed = [each for each in found if brings_a_key(each.message)]
        wrong = []
        for part in _parts(keyed):
            stored = transaction.stored_payloads([each.item_id for each in part])
            wrong += [each for each in part if stored.get(each.item_id, _payload(each)) != _payload(each)]
        return wrong

    def tell(self, wrong: Sequence[Repetition]) -> None:
        """Reports the first of them, at most once per ``TELL_EVERY``."""
        self._untold += len(wrong)
        now = self._clock.monotonic()
        if not wrong or now < self._tell_at:
            return
        self._tell_at = now + TELL_EVERY
        message, item_id, attributes = wrong[0]
        key = attributes.get("dedup_key") or attributes.get("uuid")
        others = f" ({self._untold - 1} more since the last report)" if self._untold > 1 else ""
        self._untold = 0
        self._track(
            f"message {message.place} has the Idempotency-Key {key} of item {item_id} of {self._box.name} and another "
            f"payload; it was dropped as a duplicate{others}. Its producer must use a new key for each message",
            box_name=self._box.name,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            dedup_key=str(key),
        )


def _payload(repetition: Repetition) -> bytes:
    payload = repetition.attributes.get("payload") or b""
    return payload.encode() if isinstance(payload, str) else bytes(payload)


def _parts(repetitions: Sequence[Repetition]) -> Iterator[list[Repetition]]:
    part: list[Repetition] = []
    size = 0
    for each in repetitions:
        size += len(_payload(each))
        if part and size > BYTES_AT_ONCE:
            yield part
            part, size = [], len(_payload(each))
        part.append(each)
    if part:
        yield part
