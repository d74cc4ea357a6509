"""How long leases last: longer where the coordinator is slow.

A thread asks the coordinator several things before it sends its first item, while its lease runs. Beside a slow coordinator a
short lease would end before the first item: every bucket would be taken, dropped and taken again.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta

from boxengine.engine.timing import TIMING, Timing
from boxengine.ports import Observer, events

SAMPLES = 3
"""The pace is the median of so many round trips: a single slow one may have waited for a new connection, two in a row did not."""


class LeaseLength:
    """``ttl``, the length of a lease taken or renewed now. Shared by threads; told of round trips that are made anyway."""

    def __init__(self, shortest: timedelta, *, round_trips: int, observer: Observer, timing: Timing = TIMING) -> None:
        """Args:
        shortest: at a usual pace.
        round_trips: that must fit into a lease on top of that.
        observer: told once when the coordinator is slow, and once when that is over.
        """
        self.shortest = shortest
        self.ttl = shortest
        self._round_trips = round_trips
        self._observer = observer
        self._timing = timing
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._told = False
        self._lock = threading.Lock()

    def measured(self, seconds: float) -> None:
        """Takes note of one round trip to the coordinator."""
        with self._lock:
            self._samples.append(seconds)
            pace = sorted(self._samples)[(len(self._samples) - 1) // 2]
            self.ttl = self._at(pace)
            slow = pace > (self._timing.quick_again if self._told else self._timing.slow)
            # The first round trip opens the connection, too.
            changed = slow != self._told and len(self._samples) > 1
            if changed:
                self._told = slow
        if changed and slow:
            self._observer.see(events.CoordinatorSlow(seconds=pace, lease=self.ttl))
        elif changed:
            self._observer.see(events.CoordinatorQuick(seconds=pace, lease=self.ttl))

    def _at(self, pace: float) -> timedelta:
        if pace <= self._timing.unnoticed:
            return self.shortest
        longer = self.shortest + timedelta(seconds=self._round_trips * pace)
        return max(self.shortest, min(longer, timedelta(seconds=self._timing.longest_lease)))
