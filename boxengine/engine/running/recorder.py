"""A worker's part of the history that charts show: counted in memory, handed on every ten seconds."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Sequence
from datetime import timedelta
from threading import Lock

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.engine.observation import NullObserver
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock
from boxengine.ports.people.history import LATENCIES, Happened, History

INTERVAL = timedelta(seconds=10)


class Recorder(NullObserver):
    """Counts deliveries and failed attempts. Of a batch it looks at how long the first and the last item took."""

    def __init__(self, history: History, *, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        self._lock = Lock()
        self._happened: dict[str, Happened] = {}

    def settled(self, box: Box, items: Sequence[Item], settlement: Settlement, *, seconds: float) -> None:  # noqa: ARG002 - the observer's shape
        if not settlement.delivered and not settlement.failed:
            return
        looked_at = (items[0], items[-1]) if len(settlement.delivered) == len(items) else ()
        now = self._clock.now()
        with self._lock:
            happened = self._happened.setdefault(box.name, Happened())
            happened.delivered += len(settlement.delivered)
            happened.failed += len(settlement.failed)
            for item in looked_at:
                place = bisect_left(LATENCIES, (now - item.created_at).total_seconds())
                happened.waits[place] = happened.waits.get(place, 0) + 1

    def turn(self) -> timedelta:
        """Hands on what was counted; returns the pause until the next time."""
        self.flush()
        return INTERVAL

    def flush(self) -> None:
        """Hands on what was counted."""
        with self._lock:
            happened, self._happened = self._happened, {}
        if happened:
            # Charts with a gap while Redis is out are no reason to keep numbers.
            with contextlib.suppress(QueueUnavailable):
                self._history.add(happened, now=self._clock.now())
