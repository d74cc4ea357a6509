"""Numbers, and true or false."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_FROM_ENVIRONMENT = {"type": "string", "pattern": r"\$\{"}


def schema(**keywords: Any) -> WithJsonSchema:
    """A JSON Schema that an editor may hold against the file, where ``${NAME}`` can stand for any type."""
    return WithJsonSchema({"anyOf": [keywords, _FROM_ENVIRONMENT]})


_MOST = 2**31 - 1
_WHOLE = re.compile(r"[+-]?\d+(_\d+)*")


def _whole(minimum: int, maximum: int | None = None) -> Callable[[object], int]:
    expected = f"expected a whole number from {minimum} " + ("up" if maximum is None else f"to {maximum}")

    def parse(value: object) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ValueError(expected)
        if maximum is not None and value > maximum:
            raise ValueError(expected)
        return value

    return parse


def _acks(value: object) -> int:
    return -1 if value == "all" else _whole(-1)(value)


def _decimal(minimum: float, maximum: float = math.inf) -> Callable[[object], float]:
    expected = f"expected a number from {minimum:g} " + ("up" if maximum == math.inf else f"to {maximum:g}")

    def parse(value: object) -> float:
        number = number_of(value)
        if number is None or not minimum <= number <= maximum:
            raise ValueError(expected)
        return number

    return parse


def number_of(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


TRUE, FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text in TRUE | FALSE:
        return text in TRUE
    raise ValueError("expected true or false")


Count = Annotated[int, BeforeValidator(_whole(1)), schema(type="integer", minimum=1)]
CountOrZero = Annotated[int, BeforeValidator(_whole(0)), schema(type="integer", minimum=0)]
Priority = Annotated[int, BeforeValidator(_whole(-_MOST, _MOST)), schema(type="integer", minimum=-_MOST, maximum=_MOST)]
Acks = Annotated[int, BeforeValidator(_acks), schema(anyOf=[{"type": "integer", "minimum": -1}, {"const": "all"}])]
Port = Annotated[int, BeforeValidator(_whole(0, 65535)), schema(type="integer", minimum=0, maximum=65535)]
Amount = Annotated[float, BeforeValidator(_decimal(0)), schema(type="number", minimum=0)]
Factor = Annotated[float, BeforeValidator(_decimal(1)), schema(type="number", minimum=1)]
Share = Annotated[float, BeforeValidator(_decimal(0, 1)), schema(type="number", minimum=0, maximum=1)]
Flag = Annotated[bool, BeforeValidator(_flag), schema(type="boolean")]
