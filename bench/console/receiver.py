"""Transports of the worker that the console watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from boxengine.domain.item import Item


class Swallow:
    """Takes whole batches at the given rate of items per second, and does nothing with them."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._lock = threading.Lock()
        self._free_at = 0.0

    def call_batch(self, items: Sequence[Item]) -> list[None]:
        with self._lock:
            now = time.monotonic()
            # Capacity that is not used within a tenth of a second is lost.
            begins = max(self._free_at, now - 0.1)
            self._free_at = begins + len(items) / self._per_second
        time.sleep(max(0.0, begins - now))
        return [None] * len(items)


class Stopwatch:
    """Records how long each item took from its creation; all processes share one machine's clock."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - as long as the transport

    def __call__(self, item: Item, payload: bytes) -> None:  # noqa: ARG002 - a transport's shape
        now = time.time()
        self._file.write(f"{now:.6f} {now - item.created_at.timestamp():.6f}\n")
