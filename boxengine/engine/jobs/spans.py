"""Pauses and moments that callers give, within what every database and Python can keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

LONGEST = timedelta(days=36_500)
EARLIEST = datetime(1000, 1, 2, tzinfo=UTC)
LATEST = datetime(9999, 12, 30, tzinfo=UTC)
"""MariaDB begins with the year 1000, and Python ends with 9999. A day of each is left for the zones in which drivers read."""


def span(given: Any) -> timedelta:
    """A pause, from a timedelta or seconds.

    Raises:
        ValueError: it is neither, or below zero, or longer than 100 years; the message says what was expected.

    Example::

        span(1.5)           # timedelta(seconds=1.5)
        span("5m")          # ValueError: expected a timedelta, or seconds, ...
    """
    pause = given
    if isinstance(given, int | float) and not isinstance(given, bool):
        try:
            pause = timedelta(seconds=given)
        except (OverflowError, ValueError):  # infinite, longer than a timedelta may be, or not a number
            pause = None
    if not isinstance(pause, timedelta) or not timedelta(0) <= pause <= LONGEST:
        raise ValueError(
            f"expected a timedelta, or seconds, not below zero and not beyond {LONGEST.days:,} days; got {given!r:.80}"
        )
    return pause


def moment(given: Any) -> datetime:
    """A moment that has a zone.

    Raises:
        ValueError: it has none, or is in a year that not every database can keep; the message says what was expected.
    """
    if not isinstance(given, datetime) or given.utcoffset() is None:
        raise ValueError(f"expected a datetime with a zone; got {given!r:.80}")
    if not EARLIEST <= given <= LATEST:
        raise ValueError(f"expected a moment from {EARLIEST:%Y-%m-%d} to {LATEST:%Y-%m-%d}; got {given!r:.80}")
    return given
