"""Formats numbers and durations for sentences."""

from __future__ import annotations

from datetime import timedelta

from boxengine.ports import Count, Precision

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_PRECISE = {Precision.EXACT: "", Precision.AT_LEAST: "over ", Precision.ABOUT: "about "}


def counted(count: Count, noun: str) -> str:
    """``1 item``, ``over 10,000 items``."""
    return f"{number(count)} {noun}{'' if count.number == 1 and count.precision is Precision.EXACT else 's'}"


def number(count: Count) -> str:
    """``1,204``, ``over 10,000``, ``about 5,000,000``."""
    return f"{_PRECISE[count.precision]}{count.number:,}"


def times(count: int) -> str:
    """``once``, ``4 times``."""
    return "once" if count == 1 else f"{count:,} times"


def lasting(span: timedelta) -> str:
    """``45 s``, ``3 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    rest = max(0, round(span.total_seconds()))
    parts = []
    for seconds, unit in _UNITS:
        amount, rest = divmod(rest, seconds)
        if amount:
            parts.append((seconds, f"{amount} {unit}"))
    if not parts:
        return "0 s"
    largest = parts[0][0]
    next_unit = next((seconds for seconds, _ in _UNITS if seconds < largest), None)
    return " ".join(text for seconds, text in parts if seconds in (largest, next_unit))


def ellipsis(text: str, longest: int) -> str:
    """The text, cut to ``longest`` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
