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
        self._held: dict[LeaseName, tuple[str, int | None, float]] = {}
        """By name without the number of partitions: the holder, that number, and the end."""

    def acquire(self, name: LeaseName, token: str, *, ttl: timedelta) -> bool:
        """See ``Leases.acquire``."""
        now = self._clock.monotonic()
        with self._lock:
            holder, of, until = self._held.get(_place(name), (token, name.of, 0.0))
            if (holder, of) != (token, name.of) and until > now:
                return None not in (of, name.of) and of != name.of
            self._held[_place(name)] = (token, name.of, now + ttl.total_seconds())
            return True

    def release(self, name: LeaseName, token: str) -> None:
        """Frees it if ``token`` holds it."""
        with self._lock:
            if self._held.get(_place(name), ("", None, 0.0))[:2] == (token, name.of):
                del self._held[_place(name)]

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._lock:
            self._held.clear()


def _place(name: LeaseName) -> LeaseName:
    return name._replace(of=None)
