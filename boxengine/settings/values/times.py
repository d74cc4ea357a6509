"""Durations, and moments that come again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from boxengine.domain.cron import Cron
from boxengine.settings import durations
from boxengine.settings.values.numbers import FALSE, number_of, schema
from boxengine.settings.values.texts import demand_text

LONGEST = timedelta(days=365_243)
"""A thousand years: what is counted back from now by much more is no date that Python or a database knows."""


def _bounded(length: timedelta) -> timedelta:
    if length > LONGEST:
        raise ValueError("expected at most P1000Y")
    return length


def _duration(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    length = _parsed(value)
    if length is not None:
        return _bounded(length)
    raise ValueError("expected an ISO 8601 duration such as P1W, P1D, PT6H or PT0.5S")


def _seconds(*, zero: bool) -> Callable[[object], timedelta]:
    least = "expected seconds (0 or more)" if zero else "expected seconds (more than 0)"

    def parse(value: object) -> timedelta:
        length = _length(value)
        if length is None or length < timedelta(0) or not (zero or length):
            raise ValueError(f"{least}, or an ISO 8601 duration such as PT10S")
        return _bounded(length)

    return parse


def _seconds_or_off(value: object) -> timedelta | None:
    if value is None or value is False or (isinstance(value, str) and value.lower() in FALSE - {"0"}):
        return None
    try:
        return _seconds(zero=False)(value)
    except ValueError as error:
        raise ValueError(f"{error}; or off") from error


def _length(value: object) -> timedelta | None:
    if isinstance(value, timedelta):
        return value
    number = number_of(value)
    if number is None:
        return _parsed(value)
    try:
        return timedelta(seconds=number)
    except OverflowError:
        return timedelta.max if number > 0 else None


def _parsed(value: object) -> timedelta | None:
    try:
        return durations.parse(value) if isinstance(value, str) else None
    except durations.TooLong:
        return timedelta.max
    except ValueError:
        return None


def _seconds_out(length: timedelta) -> int | float:
    seconds = length.total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _seconds_or_off_out(length: timedelta | None) -> int | float | bool:
    return False if length is None else _seconds_out(length)


def _cron(value: object) -> Cron:
    if isinstance(value, Cron):
        return value
    return Cron.parse(demand_text(value))


def _zone(value: object) -> str:
    name = demand_text(value)
    if name != "UTC":
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                "expected a time zone such as Europe/Berlin; where the machine has no time zone data, install tzdata"
            ) from None
    return name


_SECONDS_SCHEMA = WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]})
Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(durations.format_iso, return_type=str, when_used="json"),
    schema(type="string", pattern="^P"),
]
"""ISO 8601 only."""
Seconds = Annotated[
    timedelta,
    BeforeValidator(_seconds(zero=False)),
    PlainSerializer(_seconds_out, when_used="json"),
    _SECONDS_SCHEMA,
]
"""A plain number is seconds; ISO 8601 works too. More than zero."""
SecondsOrZero = Annotated[
    timedelta,
    BeforeValidator(_seconds(zero=True)),
    PlainSerializer(_seconds_out, when_used="json"),
    _SECONDS_SCHEMA,
]
SecondsOrOff = Annotated[
    timedelta | None,
    BeforeValidator(_seconds_or_off),
    PlainSerializer(_seconds_or_off_out, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}, {"const": False}]}),
]
"""As ``Seconds``; ``off``, which YAML reads as false, is None."""
CronText = Annotated[
    Cron,
    BeforeValidator(_cron),
    PlainSerializer(lambda cron: cron.text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string"}),
]
ZoneName = Annotated[str, BeforeValidator(_zone), WithJsonSchema({"type": "string"})]
