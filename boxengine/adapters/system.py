"""The system's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """``Clock`` of the machine."""

    def __init__(self) -> None:
        # Linux stops CLOCK_MONOTONIC while the machine sleeps; a lease in Redis runs on meanwhile.
        self._monotonic_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> datetime:
        """Wall-clock time, with zone UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go back; goes on while the process is stopped and, on Linux, while the machine sleeps."""
        return time.clock_gettime(self._monotonic_id)
