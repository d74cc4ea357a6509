"""Sends wake-ups beside the application's work, so that none of its commits waits for that."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context

from boxengine.errors import Unavailable
from boxengine.ports import Signal

MOST = 1000
"""Signals that wait for a server that is slow; then only their boxes are remembered."""

GATHERING = 0.01
"""Seconds for which commits gather before the next sending, because each sending takes time from the writers."""


class Announcer:
    """Takes signals from any thread at once, and sends those of many commits together.

    The thread lives only while there is something to send, and the interpreter waits for it before it exits: a program that
    ends right after its commit loses no hint.
    """

    def __init__(self, send: Callable[[list[Signal]], None]) -> None:
        self._send = send
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[Signal, None] = {}
        self._sending = False

    def tell(self, signals: list[Signal]) -> None:
        """Has the signals sent; returns without waiting for that."""
        if self._process != os.getpid():
            self._start_anew()  # threads do not live on in a forked process
        with self._lock:
            self._waiting = _joined(self._waiting, signals)
            if self._sending:
                return
            self._sending = True
        threading.Thread(target=self._run, name="boxengine-announcer", daemon=False).start()

    def _run(self) -> None:
        while signals := self._next():
            with suppress(Unavailable):  # the hints are lost, which costs one poll interval
                self._send(signals)
            time.sleep(GATHERING)

    def _next(self) -> list[Signal]:
        with self._lock:
            signals, self._waiting = list(self._waiting), {}
            self._sending = bool(signals)
        return signals

    def _start_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting = {}
        self._sending = False


class TaskAnnouncer:
    """The same on the committing code's event loop: a task sends the signals gathered meanwhile.

    A loop that ends right after the commit cancels the task; the hint is lost, which costs one poll interval.
    """

    def __init__(self, send: Callable[[list[Signal]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: dict[Signal, None] = {}
        self._task: asyncio.Task[None] | None = None

    def tell(self, signals: list[Signal]) -> None:
        """Has the signals sent; returns without waiting for that. Call it on a running loop."""
        self._waiting = _joined(self._waiting, signals)
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            # In a context of its own: what it does is no part of the request that happened to commit.
            self._task = loop.create_task(self._run(), name="boxengine-announcer", context=Context())

    async def _run(self) -> None:
        while self._waiting:
            signals, self._waiting = list(self._waiting), {}
            await self._send(signals)
            await asyncio.sleep(GATHERING)


def _joined(waiting: dict[Signal, None], signals: list[Signal]) -> dict[Signal, None]:
    """The waiting signals joined with these; if there are too many, one for each box."""
    waiting.update(dict.fromkeys(signals))
    return (
        waiting if len(waiting) <= MOST else dict.fromkeys(signal._replace(bucket=None, due=True) for signal in waiting)
    )
