"""Which buckets the threads of this process have in hand, so that hints of new rows reach them without the coordinator."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from boxengine.engine.delivering.holds.holding import Holding


class Attended:
    """The holdings of one processor's threads. Threads come and go through it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holdings: dict[str, list[Holding]] = {}
        """By box name."""

    @contextmanager
    def attending(self, holding: Holding) -> Iterator[None]:
        """A thread works on this holding while the block runs."""
        name = holding.box.name
        with self._lock:
            self._holdings.setdefault(name, []).append(holding)
        try:
            yield
        finally:
            with self._lock:
                self._holdings[name].remove(holding)

    def want(self, box_name: str, buckets: Collection[int], *, now: float) -> Collection[int]:
        """Has the threads that hold these buckets read them once more; returns the buckets that none of them holds.

        Args:
            now: monotonic time.
        """
        with self._lock:
            holdings = tuple(self._holdings.get(box_name, ()))
        left = frozenset(buckets)
        for holding in holdings:
            if left:
                left -= holding.want(left, now=now)
        return left
