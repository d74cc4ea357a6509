"""From an item to a Kafka message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from boxengine.adapters.cloudevents import STRUCTURED_TYPE, CloudEvents
from boxengine.adapters.serializers import SerializationContext, Serializer, serialized, to_bytes, to_json
from boxengine.adapters.template import ItemTemplate
from boxengine.domain.item import Item
from boxengine.errors import BoxError

ANY = -1
"""librdkafka chooses the partition by the key."""
NOW = 0
"""librdkafka uses the time at which it receives the message."""
LARGEST = 2**31 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND = timedelta(milliseconds=1)
NOT_IN_TOPICS = re.compile(r"[^a-zA-Z0-9._-]")


class Message(NamedTuple):
    """What is handed to librdkafka."""

    topic: str
    value: bytes | None
    key: str
    headers: Any
    """A dict, or a list of pairs."""
    partition: int = ANY
    timestamp: int = NOW
    """Milliseconds since 1970."""
    only_topic: bool = False
    """Whether its transport has no other topic: an error of this one would then stop every message."""


class MessageEncoder:
    """Knows topic, key, headers and serializer of one transport.

    The key is ``key``, else the item's ``options.key``, else its event key; ``options.partition`` and
    ``options.timestamp`` are the message's.
    """

    def __init__(
        self, *, topic: str, key: str | None, serializer: Serializer, cloud_events: CloudEvents | None
    ) -> None:
        self._topic = ItemTemplate(topic, what="topic")
        if not topic or (wrong := NOT_IN_TOPICS.search(self._topic.literals)):
            found = f"{wrong.group()!r} in it" if topic and wrong else "nothing"
            raise BoxError(f"topic {topic!r}: expected letters, digits, '.', '_' and '-', found {found}")
        self._constant_topic = self._topic.constant
        self._only_topic = self._constant_topic is not None
        self._key = None if key is None else ItemTemplate(key, what="key")
        self._serializer = serializer
        self._needs_context = serializer not in {to_bytes, to_json}
        self._cloud_events = cloud_events
        self._structured = cloud_events if cloud_events is not None and cloud_events.structured else None

    def __call__(self, item: Item) -> Message:
        """The item's message.

        Raises:
            Exception: whatever the serializer raises; ``ValueError`` where topic or key cannot be worked out.
        """
        topic = self._constant_topic or self._topic(item)
        headers: Any = item.headers
        if self._cloud_events is not None and self._structured is None:
            headers |= self._cloud_events.kafka_headers(item)
        options = item.options if item.raw_options else {}
        if options.get("headers"):
            headers |= dict.fromkeys(item.null_headers)
        if self._needs_context:
            headers = list(headers.items())
            value = serialized(self._serializer, item.payload, SerializationContext(item, topic, headers))
        else:
            value = self._serializer(item.payload, None)
        if self._structured is not None:
            value, headers = _in_structured_mode(self._structured, item, value, headers)
        # Most items have no options, and reading them parses JSON.
        if not options:
            key = item.event_key if self._key is None else self._key(item)
            return Message(topic, value, key, headers, ANY, NOW, self._only_topic)
        return Message(
            topic,
            value,
            self._key_of(item, options),
            headers,
            _partition(options),
            _timestamp(options.get("timestamp")),
            self._only_topic,
        )

    def _key_of(self, item: Item, options: Mapping[str, Any]) -> str:
        if self._key is not None:
            return self._key(item)
        key = options.get("key")
        return item.event_key if key is None else str(key)


def _in_structured_mode(
    events: CloudEvents, item: Item, value: bytes | None, headers: Any
) -> tuple[bytes | None, list[tuple[str, Any]]]:
    """A tombstone stays one, or compaction would keep the key; its attributes travel as headers, as in binary mode."""
    own = events.kafka_headers(item) if value is None else {"content-type": STRUCTURED_TYPE}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    kept = [(name, each) for name, each in pairs if name.lower() not in own]
    return (None if value is None else events.envelope(item, value)), [*kept, *own.items()]


def _partition(options: Mapping[str, Any]) -> int:
    partition = options.get("partition")
    if partition is None:
        return ANY
    try:
        number = int(partition)
    except (TypeError, ValueError):
        number = ANY
    if isinstance(partition, bool | float) or not 0 <= number <= LARGEST:
        raise ValueError(f"options.partition {partition!r}: expected the number of a partition")
    return number


def _timestamp(given: Any) -> int:
    """From milliseconds since 1970, or ISO 8601; a moment without a zone is UTC."""
    if given is None:
        return NOW
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    try:
        moment = datetime.fromisoformat(given)
    except (TypeError, ValueError):
        raise ValueError(f"options.timestamp {given!r}: expected milliseconds since 1970, or ISO 8601") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // MILLISECOND
