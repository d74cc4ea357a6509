"""A clock that only moves when told to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Lock

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """``Clock`` for tests and the simulation."""

    def __init__(self, start: datetime = _EPOCH) -> None:
        self._lock = Lock()
        self._start = start
        self._now = start
        self._elapsed = timedelta(0)
        self._seconds = 0.0

    def now(self) -> datetime:
        """The start and what was added since."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that were added since the start."""
        return self._seconds

    def advance(self, span: timedelta) -> None:
        """Moves both readings on."""
        with self._lock:
            self._now += span
            self._elapsed += span
            # Worked out here: the simulation reads it several times for each time that it changes.
            self._seconds = self._elapsed.total_seconds()

    def jump(self, span: timedelta) -> None:
        """Moves the wall clock alone, back or forth, as an administrator or NTP would."""
        with self._lock:
            self._now += span
