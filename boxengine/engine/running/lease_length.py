"""How long leases last: longer when the coordinator is slow.

A thread makes several round trips to the coordinator between taking a lease and sending its first item. If the coordinator
is slow, a short lease runs out before that, and every bucket is taken, dropped and taken again.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta

from boxengine.engine.timing import TIMING, Timing
from boxengine.ports import Observer, events

SAMPLES = 3
"""The pace is the median of this many round trips. One slow trip may have opened a connection; two in a row did not."""


class LeaseLength:
    """Decides the length (``ttl``) of leases that are taken or renewed now. Shared by threads; sends nothing itself."""

    def __init__(self, shortest: timedelta, *, round_trips: int, observer: Observer, timing: Timing = TIMING) -> None:
        """Args:
        shortest: the length at a normal pace.
        round_trips: how many must fit into a lease in addition.
        observer: told once when the coordinator becomes slow, and once when it is quick again.
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
        """Records how long a round trip to the coordinator took."""
        with self._lock:
            self._samples.append(seconds)
            pace = sorted(self._samples)[(len(self._samples) - 1) // 2]
            self.ttl = self._at(pace)
            slow = pace > (self._timing.quick_again if self._told else self._timing.slow)
            # The first round trip also opens the connection.
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
