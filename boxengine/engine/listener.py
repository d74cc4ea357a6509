"""Carries wake-ups from those who commit to the poller's schedule."""

from __future__ import annotations

from datetime import timedelta

from boxengine.engine.schedule import Schedule
from boxengine.ports import Wakeups

WAIT = timedelta(seconds=1)


class Listener:
    """One turn at a time."""

    def __init__(self, wakeups: Wakeups, schedule: Schedule) -> None:
        self._wakeups = wakeups
        self._schedule = schedule

    def turn(self) -> timedelta:
        """Waits for signals, up to a second, and has their partitions polled."""
        buckets: dict[str, set[int] | None] = {}
        for signal in self._wakeups.wait(WAIT):
            known = buckets.setdefault(signal.box_name, set())
            if signal.bucket is None:
                buckets[signal.box_name] = None
            elif known is not None:
                known.add(signal.bucket)
        for box_name, numbers in buckets.items():
            self._schedule.wake(box_name, numbers)
        return timedelta(0)
