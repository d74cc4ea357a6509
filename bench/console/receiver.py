"""Transports of the worker that the console watches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from boxengine.domain.item import Item


class Swallow:
    """Takes whole batches and does nothing with them."""

    def call_batch(self, items: Sequence[Item]) -> list[None]:
        return [None] * len(items)


class Stopwatch:
    """Writes down how long each item took from its creation; the clocks are one machine's."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - as long as the transport

    def __call__(self, item: Item, payload: bytes) -> None:  # noqa: ARG002 - a transport's shape
        now = time.time()
        self._file.write(f"{now:.6f} {now - item.created_at.timestamp():.6f}\n")
