"""How many jobs a box claims ahead of its threads: many where they are short, none where they are long."""

from __future__ import annotations

from boxengine.engine.jobs.timing import JobTiming

MOST = 500
"""The most jobs that a process holds unbegun, however short they are: beyond it a claim's own cost hardly falls."""
WEIGHT = 1 / 8
"""The weight of the latest job in the average."""


class Pace:
    """Knows how long one box's jobs take in one process. Only one thread may call it at a time."""

    def __init__(self, threads: int, timing: JobTiming) -> None:
        self._worth = threads * timing.ahead
        self._longest = timing.ahead
        # Nothing is known yet: as if jobs were too long.
        self._average = 2 * timing.ahead

    def note(self, seconds: float) -> None:
        """A job has kept a thread for so long. One that is too long counts for itself, at once: others like it may follow."""
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
