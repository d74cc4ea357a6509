"""Living workers in memory."""

from __future__ import annotations

from datetime import timedelta
from threading import Lock

from boxengine.ports import Clock, WorkerInfo


class MemoryWorkers:
    """``Workers`` of one process: the twin of ``RedisWorkers``."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._known: dict[str, tuple[WorkerInfo, float]] = {}

    def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
        with self._lock:
            self._known[worker.id] = (worker, self._clock.monotonic() + ttl.total_seconds())

    def withdraw(self, worker_id: str) -> None:
        with self._lock:
            self._known.pop(worker_id, None)

    def living(self) -> list[WorkerInfo]:
        now = self._clock.monotonic()
        with self._lock:
            living = [worker for worker, until in self._known.values() if now < until]
        return sorted(living, key=lambda worker: (worker.started_at, worker.id))

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._lock:
            self._known.clear()
