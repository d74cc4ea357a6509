"""The process's one event loop for users' coroutines, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from boxengine.engine.awaiting.visit import Visit

NAME = "boxengine-event-loop"
"""The name of the loop's thread."""
LAST_MOMENT = 1.0
"""Seconds that tasks left behind by transports have to end, once they are cancelled at shutdown."""


class EventLoop:
    """Runs coroutines for the engine's threads.

    The first coroutine starts the loop: so a forked process gets a loop of its own, and one without coroutines has none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        """Set once the loop in use is to end."""

    def run(self, function: Callable[..., Awaitable[Any]], *arguments: Any, name: str) -> Any:
        """Awaits ``function(*arguments)`` on the loop, in the caller's context; returns or raises what it does."""
        visit = self.visit()
        visit.begin(function, *arguments, name=name)
        visit.wait()
        return visit.result()

    def visit(self) -> Visit:
        """A visit that has not begun."""
        return Visit(self._running())

    @property
    def begun(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread] | None:
        """The loop and its thread; None if it has not been started."""
        if self._loop is None or self._thread is None:
            return None
        return self._loop, self._thread

    def close(self) -> None:
        """Ends the remaining tasks and the thread. A second call is harmless; a later coroutine starts a new loop."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            closing, self._closing = self._closing, threading.Event()
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        closing.set()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=[loop, self._closing], name=NAME, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread left at the moment: the next coroutine tries again
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop, closing: threading.Event) -> None:
    asyncio.set_event_loop(loop)
    while not closing.is_set():
        # Other transports still need the loop if one stops it, or leaves a task behind that raises one of these two: asyncio
        # re-raises them.
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


async def _end_all() -> None:
    loop, own = asyncio.get_running_loop(), asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not own]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LAST_MOMENT)
    await loop.shutdown_asyncgens()
