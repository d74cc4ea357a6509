"""From what a payload builder returned to the bytes that travel.

A serializer is any callable ``(payload, context) -> bytes | None``. ``context`` has the attributes of
``confluent_kafka.serialization.SerializationContext`` (``topic``, ``field``, ``headers``) and the ``item``, so an
instance of Confluent's ``AvroSerializer`` or ``JSONSerializer`` fits as it is. What it raises fails the item; with
``boxengine.errors.Unavailable``, where a schema registry cannot be reached, the item stays pending instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from boxengine.domain.item import Item
from boxengine.engine.answers import never_runs
from boxengine.errors import BoxError


@dataclass(slots=True)
class SerializationContext:
    """Where the bytes go. ``headers`` may be added to; what is there is sent."""

    item: Item
    topic: str
    headers: list[tuple[str, Any]]
    field: str = "value"


Serializer = Callable[[Any, Any], bytes | None]


def to_bytes(payload: Any, _context: object = None) -> bytes | None:
    """Bytes as they are, text as UTF-8, None as None (a tombstone in Kafka).

    Raises:
        TypeError: anything else; a payload builder that returns structures needs ``serializer: json``.
    """
    match payload:
        case bytes() | None:
            return payload
        case str():
            return payload.encode()
        case bytearray() | memoryview():
            return bytes(payload)
        case _:
            raise TypeError(
                f"payload is {type(payload).__name__}, not bytes or text; set `serializer: json` or name your own"
            )


def to_json(payload: Any, _context: object = None) -> bytes | None:
    """Structures as compact JSON. Bytes and text are taken to be JSON already, None stays None (a tombstone)."""
    if payload is None or isinstance(payload, bytes | str | bytearray | memoryview):
        return to_bytes(payload)
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


BUILT_IN: dict[str, Serializer] = {"bytes": to_bytes, "json": to_json}


def serializer(name: str | Serializer) -> Serializer:
    """The serializer of that name (``bytes``, ``json``), or what a dotted path leads to; a class is instantiated.

    Raises:
        BoxError: the path does not lead to a callable.
    """
    if callable(name):
        return name
    found = loaded(name)
    if isinstance(found, type):
        found = found()
    if not callable(found):
        raise BoxError(f"serializer {name!r} is {type(found).__name__}, which cannot be called")
    kind = never_runs(found)
    if kind is not None:
        raise BoxError(f"serializer {name!r} is {kind}, whose code would never run; write a plain def")
    return found  # type: ignore[no-any-return] # whatever a user's dotted path leads to


def loaded(name: str) -> Any:
    """What the name leads to; a class as it is.

    Raises:
        BoxError: it leads nowhere.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BoxError(f"serializer {name!r}: expected bytes, json or a dotted path to a callable ({error})") from error
