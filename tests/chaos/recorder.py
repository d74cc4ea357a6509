"""The transports of the chaos workers: they append every attempt to one file, whatever becomes of the worker then.

Standard library only: workers of older versions load them as well. What an item's payload begins with is how often it
is to be refused, so that retries need no memory here.

One line for each attempt: ``time pid box id bucket key taken ;``. A batch is one write to a handle opened for
appending, so what a killed worker has written is there, in the order of all workers' writes. A write that was cut
short ends without its mark; it counts as never received, and the next one begins on a line of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

ELSEWHERE = "chaos_elsewhere"
"""A schema (on MariaDB a database) with tables of the same names, of which no row may ever change."""
DEADLY = b" deadly "
"""What the payload of an item holds that ends its worker."""
EXIT = 77
"""The worker's exit code then."""
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
            f"{at:.6f} {pid} {item.box_name} {item.id} {item.bucket} {quote(item.event_key, safe='')} {int(taken)} {END}\n"
            for item, taken in zip(items, answers, strict=True)
        ]
        os.write(self._handle, ("\n" + "".join(lines)).encode())
        self._never.wait(self._pause)
        return answers


class InBatches(OneByOne):
    """Takes whole batches."""

    def call_batch(self, items: Sequence[Any]) -> list[bool]:
        return self._receive(items)


async def _never_awaited() -> bool:
    return True


def _raising(error: type[BaseException]) -> Callable[[], Any]:
    def raises() -> Any:
        raise error("as a handler that misbehaves")

    return raises


RAISED: tuple[type[BaseException], ...] = (
    SystemExit,
    KeyboardInterrupt,
    asyncio.CancelledError,
    GeneratorExit,
    RecursionError,
)
ANSWERED: tuple[Callable[[], Any], ...] = (
    _never_awaited,
    lambda: (each for each in [True]),
    lambda: ValueError("returned, not raised"),
    lambda: NotImplemented,
)


class MisbehavingOneByOne(OneByOne):
    """What it refuses it refuses in ways that no transport should have."""

    def __call__(self, item: Any, payload: Any) -> Any:
        if super().__call__(item, payload):
            return True
        ways = (*(_raising(error) for error in RAISED), *ANSWERED)
        return ways[item.id % len(ways)]()


class MisbehavingInBatches(InBatches):
    """The same for whole batches."""

    def call_batch(self, items: Sequence[Any]) -> list[Any]:
        answers = super().call_batch(items)
        return [taken or ANSWERED[item.id % len(ANSWERED)]() for item, taken in zip(items, answers, strict=True)]


class InSession(OneByOne):
    """Changes the surroundings of the engine's session, as schema-per-tenant applications do."""

    def __call__(self, item: Any, payload: Any, *, session: Any = None) -> bool:
        connection = session.connection()
        kind = "SET LOCAL" if item.id % 2 else "SET"
        postgres = connection.dialect.name == "postgresql"
        connection.exec_driver_sql(f"{kind} search_path TO {ELSEWHERE}" if postgres else f"USE {ELSEWHERE}")
        return self._receive([item])[0]


class DeadlyInBatches(InBatches):
    """One item ends the process, wherever it is in the batch."""

    def call_batch(self, items: Sequence[Any]) -> list[bool]:
        deadly = [place for place, item in enumerate(items) if DEADLY in bytes(item.payload)]
        if deadly:
            if deadly[0]:
                self._receive(items[: deadly[0]])
            os._exit(EXIT)
        return super().call_batch(items)


def refusals(payload: bytes) -> int:
    """How often an item with this payload is refused; never, where somebody else has written the payload."""
    count = bytes(payload).split(b" ", 1)[0]
    return int(count) if count.isdigit() else 0
