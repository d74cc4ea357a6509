"""What people did, in memory."""

from __future__ import annotations

from collections import deque
from itertools import islice
from threading import Lock

from boxengine.ports.people.trail import Deed


class MemoryTrail:
    """``Trail`` of one process: the twin of ``RedisTrail``."""

    def __init__(self, *, kept: int = 1_000) -> None:
        self._lock = Lock()
        self._deeds: deque[Deed] = deque(maxlen=kept)

    def add(self, deed: Deed) -> None:
        with self._lock:
            self._deeds.appendleft(deed)

    def latest(self, limit: int) -> list[Deed]:
        with self._lock:
            return list(islice(self._deeds, limit))

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._lock:
            self._deeds.clear()
