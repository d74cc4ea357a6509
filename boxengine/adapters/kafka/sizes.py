"""How large a topic's messages may be, so that a message that is too large never shares a record batch with others.

A broker refuses a record batch as a whole, and librdkafka puts messages of all threads into one. The topic's limit is
compared with the size before compression: a message above the limit may still fit, and is sent alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from boxengine.adapters.kafka.client import Client
from boxengine.adapters.kafka.messages import Message

ASKED_FROM = 4096
"""Bytes of a value. Topics of smaller messages are not asked for their limit."""
LARGEST_BY_DEFAULT = 1_000_000
"""Bytes; librdkafka's ``message.max.bytes``."""
OVERHEAD = 128
"""Bytes of a record batch and of a record, beside key, value and headers."""
PER_HEADER = 10
REMEMBERED = 60.0
"""Seconds."""
ANSWER = 5.0
"""Seconds."""


class Run(NamedTuple):
    """Messages that may go out together."""

    messages: Sequence[Message]
    suspect: bool = False
    """Whether it is one message that may be too large."""


@dataclass(slots=True)
class _Topic:
    """What is known of one topic. Its lock is held while the broker is asked."""

    lock: Lock = field(default_factory=Lock)
    limit: int | None = None
    until: float | None = None
    """When to ask again, by the monotonic clock; None: nobody has asked yet."""


class TopicLimits:
    """The size limits of topics, as the broker reports them. Used by any number of threads."""

    def __init__(self, config: Mapping[str, Any], client: Client) -> None:
        self._config = config
        self._client = client
        self._own = int(config.get("message.max.bytes", LARGEST_BY_DEFAULT))
        self._lock = Lock()
        self._topics: dict[str, _Topic] = {}
        self._silent_until = 0.0
        """Until when the brokers are asked about no topic, because an answer did not come."""

    def runs(self, messages: Sequence[Message]) -> Iterator[Run]:
        """The messages in their order, cut where one may be too large."""
        start = 0
        for place, message in enumerate(messages):
            if message.value is not None and len(message.value) >= ASKED_FROM and self._may_exceed(message):
                if place > start:
                    yield Run(messages[start:place])
                yield Run((message,), suspect=True)
                start = place + 1
        if start < len(messages):
            yield Run(messages[start:] if start else messages)

    def _may_exceed(self, message: Message) -> bool:
        size = size_of(message)
        if size > self._own:
            # The producer itself refuses this message, and no others with it.
            return False
        limit = self._limit(message.topic)
        return limit is not None and size > limit

    def _limit(self, topic: str) -> int | None:
        """Bytes; None if the broker does not report the limit."""
        if self._client.admin is None:
            return None
        with self._lock:
            known = self._topics.setdefault(topic, _Topic())
        # Only those that need this topic wait for the broker.
        with known.lock:
            now = time.monotonic()
            if now >= max(self._silent_until, known.until or 0.0):
                known.limit = self._asked(self._client.admin, topic)
                known.until = time.monotonic() + REMEMBERED
            return known.limit

    def _asked(self, admin: Any, topic: str) -> int | None:
        try:
            limit: int = admin(self._config, topic, ANSWER)
        except Exception as error:  # it is a courtesy: who may not ask finds out by sending
            if not self._is_refusal(error):
                # A batch may have hundreds of topics, and would wait as often.
                self._silent_until = time.monotonic() + REMEMBERED
            return None
        return limit

    def _is_refusal(self, error: Exception) -> bool:
        """Whether a broker has answered."""
        cause = error.args[0] if isinstance(error, self._client.exception) else None
        return isinstance(cause, self._client.error) and cause.code() > 0


def size_of(message: Message) -> int:
    """Bytes of a record batch with this message alone, before compression."""
    headers = message.headers.items() if isinstance(message.headers, Mapping) else message.headers
    size = OVERHEAD + len(message.value or b"") + _length(message.key)
    return size + sum(len(str(name)) + _length(value) + PER_HEADER for name, value in headers or ())


def _length(text: Any) -> int:
    return 0 if text is None else len(text) if isinstance(text, bytes) else len(str(text).encode(errors="replace"))
