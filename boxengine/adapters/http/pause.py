"""``Retry-After``: the receiver says when it wants to be called again."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Lock

LONGEST = 3600.0
"""Seconds; a receiver with a wrong clock or a wrong unit must not stop a box for days."""


def retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds to wait, from a number of seconds or a date (RFC 9110, 10.2.3); None if the value is neither."""
    if value is None:
        return None
    value = value.strip()
    if value.isdecimal():
        return min(float(value), LONGEST)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - now).total_seconds()), LONGEST)


class Pause:
    """Until when the receiver is not called."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._until = 0.0

    def extend(self, seconds: float) -> None:
        """Makes the pause last at least ``seconds`` from now."""
        with self._lock:
            self._until = max(self._until, self._monotonic() + seconds)

    def left(self) -> float:
        """Seconds still to wait; 0 if there is no pause."""
        return max(0.0, self._until - self._monotonic())
