"""Transports that do as little as can be, and tell when the last item has come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any


class Arrivals:
    """Counts items of all threads; ``all_there`` is set when as many have come as were expected."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left = 0
        self.all_there = threading.Event()

    def expect(self, count: int) -> None:
        self._left = count
        self.all_there.clear()

    def came(self, count: int) -> None:
        with self._lock:
            self._left -= count
            if self._left <= 0:
                self.all_there.set()


ARRIVALS = Arrivals()
"""The worker makes its transports by itself; this is how the benchmark hears from them."""


class Batches:
    """Takes whole batches."""

    def call_batch(self, items: Sequence[Any]) -> list[None]:
        ARRIVALS.came(len(items))
        return [None] * len(items)


class Singles:
    """Takes one item at a time."""

    def __call__(self, item: Any, payload: Any) -> None:  # noqa: ARG002 - a transport's shape
        ARRIVALS.came(1)


class Around:
    """An item middleware that does nothing."""

    def __call__(self, item: Any, call_next: Any) -> Any:  # noqa: ARG002 - a middleware's shape
        return call_next()
