"""Hears of jobs that others committed, in a worker that has no poller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from boxengine.ports import Signal, Wakeups

WAIT = timedelta(seconds=1)


class JobListener:
    """Receives signals. Only one thread may take its turns."""

    def __init__(self, wakeups: Wakeups, ring: Callable[[Iterable[Signal]], object]) -> None:
        """Args:
        ring: wakes the claimers, as ``Bells.ring`` does.
        """
        self._wakeups = wakeups
        self._ring = ring

    def turn(self) -> timedelta:
        """Waits up to a second for signals."""
        self._ring(self._wakeups.wait(WAIT))
        return timedelta(0)
