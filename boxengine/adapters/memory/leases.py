"""Leases on duties, in memory."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock

from boxengine.ports import Clock, LeaseName


class MemoryLeases:
    """``Leases`` of one process: the twin of ``RedisLeases``."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._held: dict[LeaseName, tuple[str, float]] = {}

    def acquire(self, name: LeaseName, token: str, *, ttl: timedelta) -> bool:
        """True if nobody held it, or ``token`` already did; it then lasts for ``ttl`` from now."""
        now = self._clock.monotonic()
        with self._lock:
            holder, until = self._held.get(name, (token, 0.0))
            if holder != token and until > now:
                return False
            self._held[name] = (token, now + ttl.total_seconds())
            return True

    def release(self, name: LeaseName, token: str) -> None:
        """Frees it if ``token`` holds it."""
        with self._lock:
            if self._held.get(name, ("", 0.0))[0] == token:
                del self._held[name]

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._lock:
            self._held.clear()
