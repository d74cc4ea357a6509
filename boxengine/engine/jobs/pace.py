"""How many jobs a box claims ahead of its threads: many where they are short, none where they are long."""

from __future__ import annotations

from boxengine.engine.jobs.timing import JobTiming

MOST = 500
"""The most jobs that a process claims ahead, however short they are. Larger claims are hardly cheaper per job."""
WEIGHT = 1 / 8
"""The weight of the latest job in the average."""


class Pace:
    """Knows how long one box's jobs take in one process. Only one thread may call it at a time."""

    def __init__(self, threads: int, timing: JobTiming) -> None:
        self._worth = threads * timing.ahead
        self._longest = timing.ahead
        # Until something is known, jobs count as too long to claim ahead.
        self._average = 2 * timing.ahead

    def note(self, seconds: float) -> None:
        """A job kept a thread this long. One that is too long raises the average to its own at once: others may follow."""
        if seconds > self._longest:
            self._average = max(self._average, seconds)
        self._average += WEIGHT * (seconds - self._average)

    def hold_back(self) -> None:
        """Jobs that were claimed ahead have waited too long, or jobs were lost."""
        self._average = max(self._average, 2 * self._longest)

    @property
    def ahead(self) -> int:
        """How many jobs the threads begin within ``timing.ahead``."""
        if self._average >= self._longest:
            return 0
        return min(MOST, int(self._worth / max(self._average, 1e-6)))
