"""Items that are sent one at a time, in memory."""

from __future__ import annotations

from boxengine.domain.box import Box


class MemoryInHand:
    """The twin of ``RedisInHand``. Objects that share ``notes`` are workers of one installation."""

    def __init__(self, notes: dict[tuple[str, str], tuple[int, str]], *, worker: str) -> None:
        self._notes = notes
        self._worker = worker

    def put(self, box: Box, item: str) -> int:
        """See ``InHand.put``."""
        deaths, before = self._notes.get((box.name, item), (0, self._worker))
        deaths += before != self._worker
        self._notes[box.name, item] = deaths, self._worker
        return deaths

    def take_out(self, box: Box, item: str) -> None:
        """The item's sending has ended, however it did."""
        self._notes.pop((box.name, item), None)
