"""Keeps the leases of the buckets in work alive, for all processor threads, in one loop of its own.

Leases are short, so that the buckets of a worker that died move to another within seconds; a worker that lives renews
them. What is in work for longer than the general timeout is not renewed any more: that thread hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from boxengine.engine.running.lease_length import LeaseLength
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Hold, JobQueue


class LeaseKeeper:
    """Renews the leases of all holds that are inside ``keeping``."""

    def __init__(self, queue: JobQueue, *, clock: Clock, length: LeaseLength, longest: timedelta) -> None:
        """Args:
        length: of a lease; renewed when a third of it is over. Told how long each renewal takes.
        longest: for how long a hold is renewed at all (general timeout).
        """
        self._queue = queue
        self._clock = clock
        self._length = length
        self._longest = longest.total_seconds()
        self._holds: dict[int, tuple[Hold, float]] = {}
        self._lock = threading.Lock()

    @property
    def ttl(self) -> timedelta:
        """How long a lease taken now lasts."""
        return self._length.ttl

    @contextmanager
    def keeping(self, hold: Hold) -> Iterator[None]:
        """The hold's leases are renewed while the block runs."""
        with self._lock:
            self._holds[id(hold)] = (hold, self._clock.monotonic() + self._longest)
        try:
            yield
        finally:
            with self._lock:
                self._holds.pop(id(hold), None)

    def turn(self) -> timedelta:
        """Renews all leases once; returns the pause until the next time."""
        with self._lock:
            # Beside a slow coordinator the last in line waits for long: the most urgent goes first.
            holds = sorted(self._holds.values(), key=lambda kept: kept[0].valid_until)
        now = self._clock.monotonic()
        for hold, until in holds:
            # A hold renewed a moment ago, or just taken, can wait for the next turn.
            if now < until and hold.valid_until - now < 0.7 * self.ttl.total_seconds():
                self._renew(hold)
        # However long leases are now: the next one may be short again.
        return self._length.shortest / 3

    def _renew(self, hold: Hold) -> None:
        before, ttl = self._clock.monotonic(), self.ttl
        try:
            lost = self._queue.extend(hold, ttl=ttl)
        except QueueUnavailable:
            return  # the hold runs out, its thread stops between two items, and nothing is lost
        self._length.measured(self._clock.monotonic() - before)
        if not lost:
            hold.valid_until = before + ttl.total_seconds()
            return
        # Somebody else may be at these buckets: whatever the thread is about to send must wait. Never renewed again, or
        # a later turn would bring the hold back to life with the thread none the wiser.
        hold.buckets.difference_update(lost)
        hold.valid_until = before
        with self._lock:
            self._holds.pop(id(hold), None)
