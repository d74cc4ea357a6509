"""From what a payload builder returned to the bytes that travel.

A serializer is any callable ``(payload, context) -> bytes | None``. ``context`` has the attributes of
``confluent_kafka.serialization.SerializationContext`` (``topic``, ``field``, ``headers``) and the ``item``, so an
instance of Confluent's ``AvroSerializer`` or ``JSONSerializer`` fits as it is. What it raises fails the item; with
``boxengine.errors.Unavailable``, where a schema registry cannot be reached, the item stays pending instead.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from boxengine.domain.item import Item
from boxengine.domain.signatures import signature_of
from boxengine.engine.answers import discard, never_runs
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


def serialized(by: Serializer, payload: Any, context: SerializationContext) -> bytes | None:
    """What this serializer makes of the payload.

    Raises:
        TypeError: neither bytes nor text. Clients would send nothing for some of it, or the keys of a mapping.
    """
    made: object = by(payload, context)
    if made is None or isinstance(made, bytes | str | bytearray | memoryview):
        return to_bytes(made)
    discard(made)
    raise TypeError(f"the serializer returned {type(made).__name__}, not bytes or text")


def serializer(name: str | Serializer) -> Serializer:
    """The serializer of that name (``bytes``, ``json``), or what a dotted path leads to; a class is instantiated.

    Raises:
        BoxError: the path does not lead to a callable.
    """
    if callable(name):
        return name
    found = loaded(name)
    return found() if isinstance(found, type) else found  # type: ignore[no-any-return] # whatever a dotted path leads to


def loaded(name: str) -> Any:
    """What the name leads to; a class as it is, but not before it is known to make a serializer.

    Raises:
        BoxError: it leads nowhere, or to what cannot be called as a serializer is.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BoxError(f"serializer {name!r}: expected bytes, json or a dotted path to a callable ({error})") from error
    fault = _fault_of_class(found) if isinstance(found, type) else _fault(found, (None, None))
    if fault is not None:
        raise BoxError(f"serializer {name!r} {fault}")
    return found


def _fault_of_class(found: type) -> str | None:
    if not any("__call__" in vars(base) for base in found.__mro__):
        return "is a class whose instances cannot be called"
    refusal = _refusal(found, ())
    if refusal is not None:
        return f"is a class that takes arguments, and gets none: {refusal}"
    of_an_instance = not isinstance(inspect.getattr_static(found, "__call__"), staticmethod)
    return _fault(found.__call__, (None, None, None) if of_an_instance else (None, None))


def _fault(found: Any, given: tuple[None, ...]) -> str | None:
    if not callable(found):
        return f"is {type(found).__name__}, which cannot be called"
    kind = never_runs(found)
    if kind is not None:
        return f"is {kind}, whose code would never run; write a plain def"
    refusal = _refusal(found, given)
    return None if refusal is None else f"is called as (payload, context): {refusal}"


def _refusal(call: Callable[..., Any], given: tuple[None, ...]) -> str | None:
    """Why it does not take so many arguments; None if it does, or has no signature to look at."""
    try:
        signature = signature_of(call)
    except (TypeError, ValueError):
        return None  # written in C
    try:
        signature.bind(*given)
    except TypeError as error:
        return str(error)
    return None
