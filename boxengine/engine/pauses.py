"""Which boxes are paused, as last heard; asked of the coordinator every few seconds at most."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from boxengine.domain.box import Box
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Pauses

REFRESH = 5.0
"""Seconds; a pause is promised to be seen everywhere within 10."""


class PauseWatch:
    """Remembers the answers, so that a poll costs no question of its own."""

    def __init__(self, pauses: Pauses, boxes: Sequence[Box], *, clock: Clock, auto_disabled: bool = False) -> None:
        """Args:
        auto_disabled: boxes that nobody resumed are paused.
        """
        self._pauses = pauses
        self._boxes = boxes
        self._clock = clock
        self._otherwise = not auto_disabled
        self._known: Mapping[str, bool] = {}
        self._fresh_until = float("-inf")
        self._lock = threading.Lock()

    def paused(self, box: Box) -> bool:
        """Whether polling of the box is off; with the coordinator out of reach, what was last heard."""
        now = self._clock.monotonic()
        with self._lock:
            refresh = now >= self._fresh_until
            if refresh:
                self._fresh_until = now + REFRESH
        if refresh:
            try:
                self._known = self._pauses.polling_enabled(self._boxes)
            except QueueUnavailable:
                self._fresh_until = now + 1.0
        return not self._known.get(box.name, self._otherwise)
