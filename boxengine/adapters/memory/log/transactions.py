"""Numbers of transactions, and snapshots of those that have ended, as PostgreSQL gives and writes them."""

from __future__ import annotations

from typing import NamedTuple

FIRST = 3
"""The first number that a server gives to a transaction: visible in every snapshot after it."""
NOTHING = f"{FIRST}:{FIRST}:"
"""The snapshot in which no transaction is visible."""


class Snapshot(NamedTuple):
    """Which transactions had ended at some moment."""

    beyond: int
    """The first number that was still to end, whatever follows it."""
    running: frozenset[int]
    """Below that."""

    @classmethod
    def read(cls, text: str) -> Snapshot:
        """A snapshot as PostgreSQL writes it."""
        _, beyond, running = text.split(":")
        return cls(int(beyond), frozenset(map(int, filter(None, running.split(",")))))

    def shows(self, number: int) -> bool:
        """Whether that transaction had ended. Rows of one that was rolled back are nowhere, so nobody asks."""
        return number < self.beyond and number not in self.running


class Transactions:
    """The transactions of one server. Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self.server = 1
        """Which server this is."""
        self._next = FIRST + 1
        self._last_ended = FIRST
        self._running: set[int] = set()

    def begin(self) -> int:
        number = self._next
        self._next += 1
        self._running.add(number)
        return number

    def end(self, number: int) -> None:
        self._running.discard(number)
        self._last_ended = max(self._last_ended, number)

    @property
    def oldest_running(self) -> int:
        """The first number whose transaction has yet to end, or to begin."""
        return min(self._running, default=self._next)

    def snapshot(self) -> str:
        """A snapshot of the transactions that have ended by now."""
        beyond = self._last_ended + 1
        running = sorted(number for number in self._running if number < beyond)
        return f"{running[0] if running else beyond}:{beyond}:{','.join(map(str, running))}"

    def move_to_another_server(self) -> None:
        """All that was committed is there, and nothing else; numbers begin anew."""
        self.server += 1
        self._next, self._last_ended = FIRST + 1, FIRST
        self._running.clear()
