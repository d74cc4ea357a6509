"""Notices code that blocks the event loop, and names it."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta

from boxengine.engine.awaiting.event_loop import EventLoop

PAUSE = timedelta(seconds=1)
"""The pause between two checks."""
PATIENCE = 1.0
"""Seconds within which the loop must run an empty call. While it is blocked, no other call proceeds and no timeout fires."""
REMEMBERED = 1_000
"""How many reported tasks are remembered: each job's has a name of its own. Beyond that, the oldest may be reported again."""


class LoopWatch:
    """Watches the loop; only one thread may take its turns. Reports each blocking task once, however long or often it blocks."""

    def __init__(self, loop: EventLoop, *, tell: Callable[[str], object], patience: float = PATIENCE) -> None:
        self._loop = loop
        self._tell = tell
        self._patience = patience
        self._told: dict[str, None] = {}
        """Names of tasks that were reported, oldest first."""

    def turn(self) -> timedelta:
        """Checks that the loop still runs calls."""
        if self._loop.begun is None:
            return PAUSE
        loop, thread = self._loop.begun
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:
            return PAUSE  # closed at this moment
        if not answered.wait(self._patience):
            self._name_whoever_blocks(loop, thread)
        return PAUSE

    def _name_whoever_blocks(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        task = asyncio.current_task(loop)
        name = "a callback" if task is None else task.get_name()
        if name in self._told:
            return
        self._told[name] = None
        if len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the only way to see another thread's
        place = traceback.extract_stack(frame)[-1] if frame is not None else None
        where = "" if place is None else f" in {place.name} ({place.filename}:{place.lineno})"
        self._tell(
            f"{name} has blocked the event loop for {self._patience:g} s{where}: await something that waits, hand the call to "
            "asyncio.to_thread, or write a plain def"
        )
