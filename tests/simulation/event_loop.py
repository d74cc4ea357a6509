"""An event loop in virtual time: coroutines take their turns in a strand of their worker, as threads do in theirs.

The engine's own code runs on it (``Visit``, ``Lanes``, cancellation, timeouts): only the loop below asyncio is replaced.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from itertools import count
from queue import Empty
from typing import Any, cast

from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.visit import Visit
from tests.simulation.scheduler import Crash, Scheduler, SimulatedCondition, Strand

INTERRUPTED = 0.2
"""Chance that other strands go on after a step of a coroutine."""

VISITOR: ContextVar[Strand] = ContextVar("visitor")
"""In a coroutine: the strand that waits for it."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """What tasks, timeouts and semaphores need of a loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        self._numbers = count()
        self._changed = SimulatedCondition(scheduler)
        self._tasks: list[asyncio.Task[Any]] = []

    def serve(self) -> None:
        """The body of its strand. It ends with the process."""
        try:
            while True:
                self._collect()
                if self._ready:
                    self._step(self._ready.popleft())
                    if self._scheduler.random.random() < INTERRUPTED:
                        self._scheduler.switch()
                else:
                    self._changed.wait(self._timers[0][0] - self.time() if self._timers else None)
        finally:
            self._forget()

    def _collect(self) -> None:
        while self._timers and self._timers[0][0] <= self.time():
            self._ready.append(heapq.heappop(self._timers)[2])

    def _step(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        with _running(self):
            handle._run()
        strand = self._scheduler.current
        if strand is None or not strand.process.alive:
            raise Crash

    def _forget(self) -> None:
        """Tasks of a process that is gone end without a word: those that wait for others come first."""
        for task in self._tasks:
            if not task.done():
                cast("Any", task)._log_destroy_pending = False
                cast("Any", task.get_coro()).close()

    # ── what asyncio asks for ────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._scheduler.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = self.call_soon(callback, *args, context=context)
        self._changed.notify_all()
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        self._tasks = [task for task in self._tasks if not task.done()]
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(context["message"]) from context.get("exception")

    def get_debug(self) -> bool:
        return False


@contextmanager
def _running(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Only while a coroutine runs: the strands of all workers share one real thread."""
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


class SimulatedEventLoop(EventLoop):
    """The engine's event loop of one worker."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler
        # To type checkers it is abstract; to Python it is not, and no more of it is called.
        self.virtual: VirtualLoop = cast("Any", VirtualLoop)(scheduler)

    def run(self, function: Callable[..., Any], *arguments: Any, name: str) -> Any:
        """Makes transports, before anything runs: such a coroutine waits for nothing."""
        try:
            function(*arguments).send(None)
        except StopIteration as end:
            return end.value
        raise RuntimeError(f"{name} waits")

    def visit(self) -> Visit:
        """A visit of the current strand, which waits in virtual time."""
        if self._scheduler.current is not None:
            VISITOR.set(self._scheduler.current)
            self._scheduler.current.context["fresh visit"] = True
        visit = Visit(self.virtual)
        visit._errands = cast("Any", _SimulatedQueue(self._scheduler))
        return visit


class _SimulatedQueue:
    """``SimpleQueue`` of strands."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._entries: deque[Any] = deque()
        self._changed = SimulatedCondition(scheduler)

    def put(self, entry: Any) -> None:
        self._entries.append(entry)
        self._changed.notify()

    def get(self, timeout: float | None = None) -> Any:
        if not self._changed.wait_for(lambda: self._entries, timeout):
            raise Empty
        return self._entries.popleft()
