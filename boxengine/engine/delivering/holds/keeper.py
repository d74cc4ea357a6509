"""Keeps the leases of the buckets in work alive, for all processor threads, in one loop of its own.

Leases are short, so that the buckets of a worker that died move to another within seconds; a worker that lives renews
them. A holding that has been in work for longer than the general timeout is not renewed any more: its thread hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.vacancies import Vacancies
from boxengine.engine.running.lease_length import LeaseLength
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, JobQueue


class LeaseKeeper:
    """Renews the leases of all holdings that are inside ``keeping``, and reports the result to each."""

    def __init__(
        self,
        queue: JobQueue,
        *,
        clock: Clock,
        length: LeaseLength,
        longest: timedelta,
        locks_decide: Callable[[Box], bool] = lambda _box: False,
    ) -> None:
        """Args:
        length: how long a lease lasts; each renewal reports to it how long it took.
        longest: after this time a holding is not renewed any more (the general timeout).
        locks_decide: see ``Store.locks_decide``.
        """
        self.vacancies = Vacancies(queue, length=length, clock=clock, locks_decide=locks_decide)
        """What may be worked on for a moment without a lease."""
        self._clock = clock
        self._length = length
        self._longest = longest.total_seconds()
        self._holdings: dict[int, tuple[Holding, float]] = {}
        self._lock = threading.Lock()

    @property
    def ttl(self) -> timedelta:
        """How long a lease taken now lasts."""
        return self._length.ttl

    @contextmanager
    def keeping(self, holding: Holding) -> Iterator[None]:
        """The holding's leases are renewed while the block runs."""
        with self._lock:
            self._holdings[id(holding)] = (holding, self._clock.monotonic() + self._longest)
        try:
            yield
        finally:
            with self._lock:
                del self._holdings[id(holding)]

    def turn(self) -> timedelta:
        """Renews the leases that need it; returns the pause until the next time."""
        with self._lock:
            # With a slow coordinator the last renewal comes late, so the most urgent goes first.
            kept = sorted(self._holdings.values(), key=lambda each: each[0].valid_until)
        now = self._clock.monotonic()
        for holding, until in kept:
            fresh = holding.hold.leased and holding.valid_until - now >= TIMING.fresh * self.ttl.total_seconds()
            if now < until and not fresh and not holding.over:
                self._renew(holding)
        self.vacancies.look()
        # However long leases are now: the next one may be short again.
        return self._length.shortest * TIMING.renewal

    def _renew(self, holding: Holding) -> None:
        before, ttl = self._clock.monotonic(), self.ttl
        try:
            lost = holding.renew(ttl=ttl)
        except QueueUnavailable:
            return  # the leases run out, the drain stops between two items, and nothing is lost
        if lost is not None:
            self._length.measured(self._clock.monotonic() - before)
            holding.renewed(lost, until=before + ttl.total_seconds())
