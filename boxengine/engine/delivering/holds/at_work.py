"""What the threads of a processor are working on, for the processor's own choices and for the console."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from boxengine.ports import Clock, Engagement, Hold


class AtWork:
    """Who works on which box. Threads come and go through it; each count is true as it is given."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since: dict[int, tuple[str, datetime]] = {}
        """By the identity of a hold, which lives as long as its thread works on it."""

    def begin(self, hold: Hold) -> None:
        """A thread begins to work on these buckets."""
        now = self._clock.now()
        with self._lock:
            self._since[id(hold)] = hold.box.name, now

    def end(self, hold: Hold) -> None:
        """The thread has finished with them."""
        with self._lock:
            self._since.pop(id(hold), None)

    def by_box(self) -> Counter[str]:
        """How many threads are at work on each box, by its name."""
        with self._lock:
            return Counter(name for name, _ in self._since.values())

    def engagements(self) -> Sequence[Engagement]:
        """How many threads are at work on each box, and since when; the longest first."""
        with self._lock:
            begun = sorted(self._since.values(), key=lambda each: each[1])
        first: dict[str, datetime] = {}
        for name, since in begun:
            first.setdefault(name, since)
        threads = Counter(name for name, _ in begun)
        return [Engagement(box=name, threads=threads[name], since=since) for name, since in first.items()]
