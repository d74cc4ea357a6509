"""How many of the next claimed jobs may be chosen by age in place of priority."""

from __future__ import annotations

EVERY = 10
"""One claimed job in ten. So urgent jobs keep nine tenths of the threads, however many old jobs there are."""


class AgedShare:
    """Counts the claims of one box in one process. Only one thread may call it at a time."""

    def __init__(self) -> None:
        # The first claim of a process looks at old jobs, or processes that restart often would never claim any.
        self._claimed = EVERY - 1

    def among(self, count: int) -> int:
        """How many of the next ``count`` jobs may be old ones."""
        return (self._claimed + count) // EVERY

    def note(self, claimed: int, oldest: int) -> None:
        """Notes that ``claimed`` jobs were claimed, of which up to ``oldest`` might have been old ones."""
        self._claimed = max(0, self._claimed + claimed - EVERY * oldest)
