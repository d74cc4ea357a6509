"""The transports of the chaos workers: they append every attempt to one file, whatever becomes of the worker then.

Standard library only: workers of older versions load them as well. What an item's payload begins with is how often it
is to be refused, so that retries need no memory here.

One line for each attempt: ``time pid box id bucket key taken ;``. A batch is one write to a handle opened for
appending, so what a killed worker has written is there, in the order of all workers' writes. A write that was cut
short ends without its mark; it counts as never received, and the next one begins on a line of its own.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

END = ";"
"""Of a line that is whole."""


class OneByOne:
    """Takes items one at a time."""

    def __init__(self, *, path: str, pause: float = 0.0) -> None:
        """Args:
        path: of the record.
        pause: seconds that a call takes, half of them before the item is received and half after.
        """
        self._handle = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
        self._pause = pause / 2
        self._never = threading.Event()

    def __call__(self, item: Any, payload: Any) -> bool:
        return self._receive([item])[0]

    def _receive(self, items: Sequence[Any]) -> list[bool]:
        self._never.wait(self._pause)
        answers = [item.errors_count >= refusals(item.payload) for item in items]
        at, pid = time.monotonic(), os.getpid()
        lines = [
            f"{at:.6f} {pid} {item.box_name} {item.id} {item.bucket} {item.event_key} {int(taken)} {END}\n"
            for item, taken in zip(items, answers, strict=True)
        ]
        os.write(self._handle, ("\n" + "".join(lines)).encode())
        self._never.wait(self._pause)
        return answers


class InBatches(OneByOne):
    """Takes whole batches."""

    def call_batch(self, items: Sequence[Any]) -> list[bool]:
        return self._receive(items)


def refusals(payload: bytes) -> int:
    """How often an item with this payload is refused."""
    return int(bytes(payload).split(b" ", 1)[0])
