"""Answers that stay good for a moment."""

from __future__ import annotations

from time import monotonic
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The latest answers, with their age. Threads may share it."""

    def __init__(self, *, most: int = 50) -> None:
        """Args:
        most: how many are remembered.
        """
        self._most = most
        self._known: dict[K, tuple[float, V]] = {}

    def get(self, key: K, *, seconds: float) -> V | None:
        """The answer; None: there is none, or it is older than so many seconds."""
        known = self._known.get(key)
        return known[1] if known is not None and monotonic() - known[0] < seconds else None

    def put(self, key: K, value: V) -> None:
        """Remembers the answer, and forgets the oldest."""
        # A new dictionary, so that no other thread sees one that changes.
        others = [(each, known) for each, known in self._known.items() if each != key]
        self._known = {key: (monotonic(), value), **dict(others[: self._most - 1])}
