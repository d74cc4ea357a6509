"""ISO 8601 durations to ``timedelta`` and back.

Years and months count as their average length in the Gregorian calendar, as in the reference (ActiveSupport).
"""

from __future__ import annotations

import re
from datetime import timedelta

_NUMBER = r"(\d+(?:[.,]\d+)?)"
_DURATION = re.compile(
    rf"P(?=.)(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_YEAR = timedelta(days=365.2425)
_UNITS = (
    _YEAR,
    _YEAR / 12,
    timedelta(weeks=1),
    timedelta(days=1),
    timedelta(hours=1),
    timedelta(minutes=1),
    timedelta(seconds=1),
)


class TooLong(ValueError):
    """The text is a duration, and Python has none of this length."""


def parse(text: str) -> timedelta:
    """The length of ``P1W``, ``PT6H``, ``P1DT12H``, ``PT0.5S``.

    Raises:
        ValueError: the text is not a duration.
        TooLong: it is one of more than 2.7 million years.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an ISO 8601 duration: {text!r}")
    try:
        return sum(
            (
                unit * float(number.replace(",", "."))
                for unit, number in zip(_UNITS, match.groups(), strict=True)
                if number
            ),
            timedelta(0),
        )
    except OverflowError as error:
        raise TooLong(f"too long: {text!r}") from error


def format_iso(length: timedelta) -> str:
    """The shortest usual form: ``P1W`` for whole weeks, else days and time; ``PT0S`` for nothing.

    Raises:
        ValueError: the length is negative.
    """
    if length < timedelta(0):
        raise ValueError(f"a duration is not negative: {length}")
    if length and not length % timedelta(weeks=1):
        return f"P{length // timedelta(weeks=1)}W"
    hours, rest = divmod(length.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    days = f"{length.days}D" if length.days else ""
    time = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M")) if number)
    if seconds or length.microseconds:
        time += f"{seconds + length.microseconds / 1_000_000:.6f}".rstrip("0").rstrip(".") + "S"
    if not days and not time:
        return "PT0S"
    return f"P{days}" + (f"T{time}" if time else "")


def format_seconds(length: timedelta) -> str:
    """``0.5 s``, ``90 s``: for messages."""
    return f"{length.total_seconds():g} s"
