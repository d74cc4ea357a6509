"""A message received from a broker, and the inbox item it becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from boxengine.domain.cloud_event import is_structured, opened
from boxengine.domain.item import rfc3339
from boxengine.errors import InvalidItem

LONGEST_NAME = 255
"""The most characters that ``event_key``, ``event_name`` and ``dedup_key`` can hold."""
NAMESPACE = uuid5(NAMESPACE_URL, "boxengine:inbox")
"""For uuids derived from dedup keys that are not uuids; with another one, known messages would seem new."""
IDEMPOTENCY_KEY = "idempotency-key"
EVENT_NAMES = ("event-name", "ce_type")
CLOUD_EVENT = ("ce_source", "ce_id")
CONTENT_TYPE = "content-type"


class ReceivedMessage(NamedTuple):
    """One message as the broker delivered it, nothing decoded yet."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    """None: a tombstone, which becomes an item with an empty payload."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: datetime | None = None
    cluster: str = ""
    """Id of the cluster that the message was received from; empty if unknown."""
    unreadable: str = ""
    """Why the message cannot become an item: a part of it, which is left out here, cannot be represented. Empty: it can."""

    @property
    def place(self) -> str:
        """``topic:partition:offset``, for people. A topic that was deleted and recreated reuses its places."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def identity(self) -> str:
        """Distinguishes the message from all others: its place, the cluster, and the time of the message.

        Places repeat in a topic that was deleted and recreated, and on another cluster.
        """
        moment = "" if self.timestamp is None else round(self.timestamp.timestamp() * 1000)
        return f"{self.place}@{self.cluster}:{moment}"


def item_attributes(
    message: ReceivedMessage,
    *,
    max_payload: int | None = None,
    ruled: Callable[[ReceivedMessage], Mapping[str, Any]] = lambda _message: {},
) -> dict[str, Any]:
    """The attributes of the message's inbox item.

    ``event_key`` is the message's key, so that the bucket, and with it the order, follows the key; without a key it is the
    idempotency key, or else topic and partition. The idempotency key is the ``Idempotency-Key`` header, or else ``source`` and
    ``id`` of a CloudEvent. ``dedup_key`` is that key, or else the message's identity; ``uuid`` follows from it. A CloudEvent in
    structured mode becomes the same item as in binary mode; if the message has no key, the event's own is the event key.

    Args:
        max_payload: in bytes; None: no limit.
        ruled: says which attributes replace these. If it gives the event key, the message's key may be any bytes.

    Raises:
        InvalidItem: the message is unreadable, its key or a header is not UTF-8, its value is too large, or it is not the
            CloudEvent that its content type announces.
        BaseException: what ``ruled`` raises.
    """
    if message.unreadable:
        raise InvalidItem(message.unreadable)
    size = len(message.value or b"")
    if max_payload is not None and size > max_payload:
        raise InvalidItem(f"value of {size} bytes is over the limit of {max_payload} (max_payload_bytes)")
    headers = {name: _decoded(value or b"", f"header {name!r}") for name, value in message.headers}
    parts = _opened(_Parts(message, None, headers))
    said = ruled(message)
    if message.key is not None and "event_key" not in said:
        parts = parts._replace(key=_decoded(message.key, "the key") or parts.key)
    return _attributes(parts) | dict(said)


def remains(message: ReceivedMessage) -> dict[str, Any]:
    """As much as possible of the same attributes, for a dead letter: a message that cannot be stored as it is.

    Bytes that are not UTF-8 are written as ``\\xNN``; names that are too long end in their hash.
    """
    key = None if message.key is None else storable(message.key)
    parts = _Parts(message, key, {name: storable(value or b"") for name, value in message.headers})
    with suppress(InvalidItem):  # a value that is not an event is kept unchanged
        parts = _opened(parts)
    attributes = _attributes(_without_nul(parts))
    for name in ("event_key", "event_name"):
        if attributes.get(name) is not None:
            attributes[name] = fitted(attributes[name])
    return attributes


def former_identity(message: ReceivedMessage) -> str | None:
    """The ``dedup_key`` under which earlier versions stored a message without its own key: just its place.

    None: the message has a key.
    """
    # Those versions did not open events in structured mode, and identified them by their places.
    return None if _has_key_in(_lowered(message)) else fitted(message.place)


def brings_a_key(message: ReceivedMessage) -> bool:
    """Whether its producer gave it an identity; otherwise its place and time identify it."""
    headers = _lowered(message)
    if _has_key_in(headers):
        return True
    return message.value is not None and is_structured((headers.get(CONTENT_TYPE) or b"").decode(errors="replace"))


def _lowered(message: ReceivedMessage) -> dict[str, bytes | None]:
    return {name.lower(): value for name, value in message.headers}


def _has_key_in(headers: Mapping[str, bytes | None]) -> bool:
    return bool(headers.get(IDEMPOTENCY_KEY)) or all(headers.get(name) for name in CLOUD_EVENT)


def fitted(text: str) -> str:
    """The text if it is short enough for a name column; otherwise its beginning and its SHA-256."""
    if len(text) <= LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    return f"{text[: LONGEST_NAME - len(digest) - 1]}~{digest}"


def storable(raw: bytes) -> str:
    """The bytes as text that every database can store."""
    return without_nul(raw.decode(errors="backslashreplace"))


def without_nul(text: str) -> str:
    """The text without NUL, the one character that PostgreSQL's text cannot hold."""
    return text.replace("\x00", "\\x00")


class _Parts(NamedTuple):
    """A message, with its key and headers as text."""

    message: ReceivedMessage
    key: str | None
    headers: dict[str, str]


def _opened(parts: _Parts) -> _Parts:
    """The parts in binary mode, if the message is a CloudEvent in structured mode."""
    message, key, headers = parts
    if message.value is None or not _is_structured(headers):
        return parts
    event = opened(message.value)
    replaced = {CONTENT_TYPE, *(name.lower() for name in event.headers)}
    kept = {name: value for name, value in headers.items() if name.lower() not in replaced}
    return _Parts(message._replace(value=event.data), key or event.key, kept | event.headers)


def _without_nul(parts: _Parts) -> _Parts:
    texts = {without_nul(name): without_nul(value) for name, value in parts.headers.items()}
    return parts._replace(key=None if parts.key is None else without_nul(parts.key), headers=texts)


def _is_structured(headers: Mapping[str, str]) -> bool:
    return any(name.lower() == CONTENT_TYPE and is_structured(value) for name, value in headers.items())


def _attributes(parts: _Parts) -> dict[str, Any]:
    message, key, headers = parts
    by_name = {name.lower(): value for name, value in headers.items()}
    idempotency_key = by_name.get(IDEMPOTENCY_KEY) or _cloud_event(by_name)
    uuid = _uuid(idempotency_key)
    dedup_key = fitted(str(uuid or idempotency_key or message.identity))
    kafka: dict[str, Any] = {"topic": message.topic, "partition": message.partition, "offset": message.offset}
    if message.timestamp is not None:
        kafka["timestamp"] = rfc3339(message.timestamp)
    if message.value is None:
        kafka["tombstone"] = True
    return {
        "uuid": uuid or uuid5(NAMESPACE, dedup_key),
        "dedup_key": dedup_key,
        "event_key": key or idempotency_key or f"{message.topic}:{message.partition}",
        "event_name": next((by_name[name] for name in EVENT_NAMES if by_name.get(name)), None),
        "payload": message.value or b"",
        "options": {"headers": headers, "kafka": kafka},
    }


def _cloud_event(headers: Mapping[str, str]) -> str | None:
    """CloudEvents 1.0: source and id together are unique for each event."""
    source, event_id = (headers.get(name) for name in CLOUD_EVENT)
    return f"{source}#{event_id}" if source and event_id else None


def _uuid(text: str | None) -> UUID | None:
    """The canonical UUID, so that two spellings of one mean the same message."""
    try:
        return None if text is None else UUID(text)
    except ValueError:
        return None


def _decoded(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidItem(f"{what} is not UTF-8: {error}") from error
