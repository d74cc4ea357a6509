"""The process's one event loop for users' coroutines, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
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
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=[self._loop], name=NAME, daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    stopped = False
    while not stopped:
        try:
            loop.run_forever()
            stopped = True
        except (SystemExit, KeyboardInterrupt):
            # asyncio re-raises these two from tasks that a transport left behind. Other transports still need the loop.
            continue


async def _end_all() -> None:
    loop, own = asyncio.get_running_loop(), asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not own]
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LAST_MOMENT)
    await loop.shutdown_asyncgens()
