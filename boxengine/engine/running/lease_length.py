"""How long leases last: longer where the coordinator is slow.

Before a thread sends its first item it asks the coordinator several things, and its lease runs all the while. Beside a slow
coordinator a short lease would be over before the first item: every bucket would be taken, dropped and taken again.
"""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta

from boxengine.ports import Observer

SAMPLES = 3
"""Round trips whose median is the pace: one that waited for a new connection says nothing, and two in a row do."""
UNNOTICED = 0.25
"""Seconds of a round trip up to which leases keep their usual length."""
SLOW = 1.0
"""Seconds of a round trip from which on somebody is told."""
QUICK_AGAIN = 0.5
"""Seconds of a round trip below which it is over, so that a pace around ``SLOW`` is not told again and again."""
LONGEST = timedelta(minutes=1)
"""A worker that dies holds its buckets up for no longer than this, however slow the coordinator is."""


class LeaseLength:
    """``ttl``, the length of a lease taken or renewed now. Shared by threads; told of round trips that are made anyway."""

    def __init__(self, shortest: timedelta, *, round_trips: int, observer: Observer) -> None:
        """Args:
        shortest: at a usual pace.
        round_trips: that must fit into a lease on top of that.
        observer: told once when the coordinator is slow, and once when that is over.
        """
        self.shortest = shortest
        self.ttl = shortest
        self._round_trips = round_trips
        self._observer = observer
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        self._told = False
        self._lock = threading.Lock()

    def measured(self, seconds: float) -> None:
        """Takes note of one round trip to the coordinator."""
        with self._lock:
            self._samples.append(seconds)
            pace = sorted(self._samples)[(len(self._samples) - 1) // 2]
            self.ttl = self._at(pace)
            slow = pace > (QUICK_AGAIN if self._told else SLOW)
            # The first round trip opens the connection, too.
            changed = slow != self._told and len(self._samples) > 1
            if changed:
                self._told = slow
        if changed and slow:
            self._observer.coordinator_slow(seconds=pace, lease=self.ttl)
        elif changed:
            self._observer.coordinator_quick(seconds=pace, lease=self.ttl)

    def _at(self, pace: float) -> timedelta:
        if pace <= UNNOTICED:
            return self.shortest
        longer = self.shortest + timedelta(seconds=self._round_trips * pace)
        return max(self.shortest, min(longer, LONGEST))
