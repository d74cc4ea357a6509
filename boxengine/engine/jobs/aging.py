"""How many of the jobs that are claimed next may be those that have waited for long."""

from __future__ import annotations

EVERY = 10
"""One of so many claimed jobs: urgent ones keep nine tenths of the threads, however many old ones there are."""


class AgedShare:
    """Counts the claims of one box in one process. Only one thread may call it at a time."""

    def __init__(self) -> None:
        # The first claim of a process looks at old jobs: processes that are restarted often must not leave them out.
        self._claimed = EVERY - 1

    def among(self, count: int) -> int:
        """How many of the next ``count`` jobs."""
        return (self._claimed + count) // EVERY

    def note(self, claimed: int, oldest: int) -> None:
        """So many jobs were claimed, and so many of them might have been old ones."""
        self._claimed = max(0, self._claimed + claimed - EVERY * oldest)
