"""From an item to a Kafka message."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from boxengine.adapters.cloudevents import CloudEvents
from boxengine.adapters.serializers import SerializationContext, Serializer, to_bytes, to_json
from boxengine.adapters.template import ItemTemplate
from boxengine.domain.item import Item
from boxengine.errors import BoxError

NOT_IN_TOPICS = re.compile(r"[^a-zA-Z0-9._-]")


class Message(NamedTuple):
    """What is handed to librdkafka."""

    topic: str
    value: bytes | None
    key: str
    headers: Any
    """A dict, or a list of pairs."""


class MessageEncoder:
    """Knows topic, key, headers and serializer of one transport.

    The key is ``key``, else the item's ``options.key``, else its event key.
    """

    def __init__(
        self, *, topic: str, key: str | None, serializer: Serializer, cloud_events: CloudEvents | None
    ) -> None:
        self._topic = ItemTemplate(topic, what="topic")
        if not topic or (wrong := NOT_IN_TOPICS.search(self._topic.literals)):
            found = f"{wrong.group()!r} in it" if topic and wrong else "nothing"
            raise BoxError(f"topic {topic!r}: expected letters, digits, '.', '_' and '-', found {found}")
        self._constant_topic = self._topic.constant
        self._key = None if key is None else ItemTemplate(key, what="key")
        self._serializer = serializer
        self._needs_context = serializer not in {to_bytes, to_json}
        self._cloud_events = cloud_events

    def __call__(self, item: Item) -> Message:
        """The item's message.

        Raises:
            Exception: whatever the serializer raises; ``ValueError`` where topic or key cannot be worked out.
        """
        topic = self._constant_topic or self._topic(item)
        headers: Any = item.headers
        if self._cloud_events is not None:
            headers |= self._cloud_events.kafka_headers(item)
        if self._needs_context:
            headers = list(headers.items())
            value = self._serializer(item.payload, SerializationContext(item, topic, headers))
        else:
            value = self._serializer(item.payload, None)
        # Most items have no options, and reading them parses JSON.
        key = item.event_key if self._key is None and not item.raw_options else self._key_of(item)
        return Message(topic, value, key, headers)

    def _key_of(self, item: Item) -> str:
        if self._key is not None:
            return self._key(item)
        key = item.options.get("key")
        return item.event_key if key is None else str(key)
