"""Failed attempts lately, in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from boxengine.ports.people.attempts import KEPT_ATTEMPTS, Attempt


class MemoryAttempts:
    """``Attempts`` of one process: the twin of ``RedisAttempts``."""

    def __init__(self, *, items: int = 5_000) -> None:
        self._items = items
        self._lock = Lock()
        self._found: dict[tuple[str, int], list[Attempt]] = {}
        """The item that failed last comes last."""

    def add(self, failed: Mapping[str, Sequence[Attempt]]) -> None:
        with self._lock:
            for box, attempts in failed.items():
                for attempt in attempts:
                    known = self._found.pop((box, attempt.item_id), [])
                    self._found[box, attempt.item_id] = [*known, attempt][-KEPT_ATTEMPTS:]
                own = [key for key in self._found if key[0] == box]
                for key in own[: max(0, len(own) - self._items)]:
                    del self._found[key]

    def of(self, box: str, item_id: int, uuid: str) -> list[Attempt]:
        with self._lock:
            return [attempt for attempt in self._found.get((box, item_id), ()) if attempt.uuid == uuid]
