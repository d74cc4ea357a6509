"""The system's clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial


class SystemClock:
    """``Clock`` of the machine."""

    def __init__(self) -> None:
        # Linux stops CLOCK_MONOTONIC while the machine sleeps; a lease in Redis runs on meanwhile.
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        # Asked several times for each item that is sent by itself, so it is no method: that would cost one more call.
        self.monotonic: Callable[[], float] = partial(time.clock_gettime, clock)
        """Seconds that never go back; goes on while the process is stopped and, on Linux, while the machine sleeps."""

    def now(self) -> datetime:
        """Wall-clock time, with zone UTC."""
        return datetime.now(UTC)
