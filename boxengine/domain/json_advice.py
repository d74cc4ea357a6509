"""Why JSON cannot hold a value, and what to give in its place. Imported only once something was refused."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from os import PathLike
from uuid import UUID

_HELD = (str, int, float, type(None))
"""What JSON holds as a value, and takes as a key. Booleans are ints."""
_BY_CLASS: tuple[tuple[type, str], ...] = (
    (Decimal, "str(value)"),
    (date, "value.isoformat()"),  # datetime too
    (time, "value.isoformat()"),
    (timedelta, "value.total_seconds()"),
    (UUID, "str(value)"),
    (PathLike, "str(value)"),
    (Enum, "value.value"),
    (bytes, "base64.b64encode(value).decode()"),
    (bytearray, "base64.b64encode(value).decode()"),
    (BaseException, "str(value)"),
    (Awaitable, "what it returns: write await before it"),
    (Mapping, "dict(value)"),
    (AbstractSet, "sorted(value)"),
    (Iterable, "list(value)"),
)
"""In this order, for some belong to several."""
_BY_ATTRIBUTE = {
    "__mapper__": "its primary key, and read the row where it is needed",  # SQLAlchemy
    "__dataclass_fields__": "dataclasses.asdict(value)",
    "model_dump": 'value.model_dump(mode="json")',  # Pydantic
    "__attrs_attrs__": "attrs.asdict(value)",
    "__struct_fields__": "msgspec.to_builtins(value)",
    "_mapping": "dict(value._mapping)",  # a row of SQLAlchemy's
    "tolist": "value.tolist()",  # NumPy
}
"""By what the classes of well-known libraries have. These need not be installed."""
_OTHERWISE = "what it consists of, as dicts, lists, texts, numbers, booleans and None"


def why_not_json(value: object) -> str | None:
    """The first part of a value that JSON cannot hold: where it is, its type, and what to give instead. None: there is none.

    Example::

        why_not_json({"rows": [{"price": Decimal("1.5")}]})
        # "['rows'][0]['price'] is of type Decimal; give str(value)"
    """
    seen: set[int] = set()
    parts: list[tuple[str, object]] = [("", value)]
    while parts:
        path, part = parts.pop()
        if isinstance(part, dict | list | tuple):
            if id(part) in seen:
                continue
            seen.add(id(part))
            for key in part if isinstance(part, dict) else ():
                if not isinstance(key, _HELD):
                    return f"a key of {path or 'the dict'} is of type {type(key).__name__}; keys are texts"
            parts += reversed(list(_inside(path, part)))
        elif isinstance(part, float) and not isfinite(part):
            return f"{path or 'it'} is {part}, which is no number in JSON; give None, or a text"
        elif not isinstance(part, _HELD):
            return f"{path or 'it'} is of type {type(part).__name__}; give {_instead(part)}"
    return None


def _inside(path: str, part: dict[object, object] | list[object] | tuple[object, ...]) -> Iterator[tuple[str, object]]:
    pairs = part.items() if isinstance(part, dict) else enumerate(part)
    return ((f"{path}[{key!r:.80}]", each) for key, each in pairs)


def why_no_mapping(value: object) -> str:
    """What is said of a value that stands where a mapping is expected."""
    refusal = f"expected a mapping, got {type(value).__name__}"
    advice = "the mapping, not its text" if isinstance(value, str | bytes) else _by_attribute(value)
    return refusal if advice is None else f"{refusal}; give {advice}"


def _instead(part: object) -> str:
    if isinstance(part, type):
        return "its name, or an instance's values"
    of_a_library = _by_attribute(part)
    if of_a_library is not None:
        return of_a_library
    return next((advice for known, advice in _BY_CLASS if isinstance(part, known)), _OTHERWISE)


def _by_attribute(value: object) -> str | None:
    return next((advice for attribute, advice in _BY_ATTRIBUTE.items() if hasattr(type(value), attribute)), None)
