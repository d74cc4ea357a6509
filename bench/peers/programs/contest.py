"""The interface of each program: ``python PROGRAM.py VERB NUMBER... ``, with answers as JSON on standard output.

====================  ===========================================================================================
``setup``             creates the tables
``fill N``            writes N messages in large batches
``work N``            runs a worker until it has handled N messages. Prints ``ready`` first
``write N RATE``      writes N messages at this rate per second, each in its own transaction
``commits WRITERS N`` this many writers together write N messages, each in its own transaction
====================  ===========================================================================================

The servers are in the environment: ``POSTGRES_URL``, ``REDIS_URL``. Only the standard library is imported here, because
each program runs in an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from typing import Any

SIZE = 500
"""Bytes of a message."""
BATCH = 1000
"""How many messages are written at once to fill a queue."""
POSTGRES = os.environ.get("POSTGRES_URL", "")
"""``postgresql://...``"""
REDIS = os.environ.get("REDIS_URL", "")


def message() -> str:
    """A message that holds its creation time; all processes of a machine share the clock."""
    return f"{time.perf_counter():.7f}".ljust(SIZE, "x")


class Arrivals:
    """Records when messages reached the handler."""

    def __init__(self) -> None:
        self._left = 0
        self._first: float | None = None
        self._last = 0.0
        self._waits: list[float] = []

    def expect(self, count: int) -> None:
        """Starts over; this many messages are to come."""
        self._left = count

    def note(self, text: str) -> bool:
        """Call it first in the handler; True: this was the last message."""
        self._last = time.perf_counter()
        if self._first is None:
            self._first = self._last
        self._waits.append(1000 * (self._last - float(text.rstrip("x"))))
        self._left -= 1
        return self._left == 0

    def tell(self) -> None:
        """Prints the rate, and the waits in milliseconds."""
        rate = (len(self._waits) - 1) / max(self._last - (self._first or 0.0), 1e-9)
        print(json.dumps({"rate": rate, "waits": self._waits}), flush=True)


class Program(ABC):
    """One system, with asynchronous methods; a system that is not asynchronous runs its threads inside them."""

    @abstractmethod
    async def setup(self) -> None: ...

    @abstractmethod
    async def fill(self, count: int) -> None: ...

    @abstractmethod
    async def work(self, count: int) -> None: ...

    @abstractmethod
    async def writer(self) -> Any:
        """An object with ``write(text)``, which writes and commits one message, and ``close()``; both are awaited."""

    async def write(self, count: int, rate: int) -> None:
        """Writes messages at a low rate."""
        writer = await self.writer()
        for _ in range(count):
            await writer.write(message())
            await asyncio.sleep(1 / rate)
        await writer.close()

    async def commits(self, writers: int, count: int) -> None:
        """Prints how many messages per second the writers committed."""
        opened = [await self.writer() for _ in range(writers)]
        for each in opened:
            await each.write(message())

        async def some(writer: Any) -> None:
            for _ in range(count // writers):
                await writer.write(message())

        began = time.perf_counter()
        await asyncio.gather(*map(some, opened))
        print(json.dumps({"rate": count / (time.perf_counter() - began)}), flush=True)
        for each in opened:
            await each.close()


def ready() -> None:
    """Reports that the worker takes messages from now on."""
    print("ready", flush=True)


def run(program: Program) -> None:
    """Runs the verb on the command line."""
    verb, *numbers = sys.argv[1:]
    asyncio.run(getattr(program, verb)(*map(int, numbers)))
