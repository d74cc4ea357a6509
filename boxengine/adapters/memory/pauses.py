"""Paused boxes in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from boxengine.domain.box import Box, BoxType


class MemoryPauses:
    """``Pauses`` of one process: the twin of ``RedisPauses``."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._enabled: dict[tuple[BoxType, str], bool] = {}

    def set(self, box: Box, *, polling_enabled: bool) -> None:
        """Remembers it for all users of this object."""
        with self._lock:
            self._enabled[box.type, box.name] = polling_enabled

    def forget(self, box: Box) -> None:
        """The box follows the configuration again."""
        with self._lock:
            self._enabled.pop((box.type, box.name), None)

    def polling_enabled(self, boxes: Sequence[Box]) -> Mapping[str, bool]:
        """By box name, for those boxes that somebody paused or resumed."""
        with self._lock:
            return {
                box.name: self._enabled[box.type, box.name] for box in boxes if (box.type, box.name) in self._enabled
            }

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._lock:
            self._enabled.clear()
