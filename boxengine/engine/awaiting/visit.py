"""A coroutine on the event loop, and the thread that waits for it and runs errands for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any

from boxengine.engine.awaiting.unawaited import Unawaited
from boxengine.errors import BoxError


class Visit:
    """One coroutine, begun and awaited by one thread. It runs in a copy of the thread's context: traces, log tags.

    A claim's session and transaction belong to the thread that made them. So the coroutine does not touch them itself: it
    sends the thread on an errand, and awaits the outcome.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._errands: SimpleQueue[_Errand | None] = SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._ended = False
        self._thread = threading.get_ident()
        self._struck: set[asyncio.Task[Any]] = set()
        """Tasks that were cancelled during an errand, and have not been told yet."""
        self._unawaited = Unawaited()
        self._result: Any = None
        self._error: BaseException | None = None

    # ── in the thread ────────────────────────────────────────────────────────────────────────────────

    def begin(self, function: Callable[..., Awaitable[Any]], *arguments: Any, name: str) -> None:
        """Starts awaiting ``function(*arguments)`` on the loop.

        Args:
            name: of the task, for those who look at what the loop does.
        """

        def start() -> None:
            self._task = self._loop.create_task(self._main(function, arguments), name=name)
            self._task.add_done_callback(self._over)
            if self._cancelled:
                self._task.cancel()

        self._loop.call_soon_threadsafe(start, context=copy_context())

    def wait(self, within: float | None = None) -> bool:
        """Runs errands until the coroutine ends, or until none came for ``within`` seconds; returns whether it has ended."""
        if self._ended:
            return True
        try:
            while (errand := self._errands.get(timeout=within)) is not None:
                errand.run()
                del errand  # otherwise its references would live until the next errand
        except Empty:
            return False
        self._ended = True
        return True

    @property
    def in_thread(self) -> bool:
        """Whether the caller is the thread that made this visit, and not the coroutine."""
        return threading.get_ident() == self._thread

    def cancel(self) -> None:
        """Cancels the coroutine once, at its next ``await``. Any thread may call this; before ``begin``, no step is taken."""

        def cancel() -> None:
            self._cancelled = True
            if self._task is not None:
                self._task.cancel()

        with suppress(RuntimeError):  # the loop is closed, and its tasks with it
            self._loop.call_soon_threadsafe(cancel)

    def result(self) -> Any:
        """Returns or raises what the coroutine did; call it after the coroutine's end.

        Raises:
            BoxError: it returned, but has not awaited all that ``note`` was told of.
        """
        forgotten = self._unawaited.close()
        error, self._error = self._error, None
        if error is not None:
            raise error
        if forgotten:
            calls = ", ".join(f"{name}(...)" for name in forgotten)
            raise BoxError(f"{calls}: was not awaited by its async handler, and did nothing; write await before it")
        return self._result

    # ── on the loop ──────────────────────────────────────────────────────────────────────────────────

    async def errand(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Makes the thread call ``function(*arguments)``, in the caller's context.

        A cancelled caller gets its ``CancelledError`` only at its next ``await``: a thread in the middle of a statement cannot
        be interrupted, and the caller must not leave before the statement ends.
        """
        if self._task is None or self._task.done():
            raise BoxError("this belongs to a call that is over")
        errand = _Errand(copy_context(), function, arguments, self._loop)
        self._errands.put(errand)
        cancelled = False
        while not errand.outcome.done():
            try:
                await asyncio.wait([errand.outcome])
            except asyncio.CancelledError:
                cancelled = True
                _current_task().uncancel()
        if cancelled:
            self._struck.add(_current_task())
            _current_task().cancel()
        return errand.outcome.result()

    async def settled(self, call: Callable[..., Awaitable[Any]], /, *arguments: Any, **options: Any) -> Any:
        """Awaits ``call(*arguments)``, and at its end raises the ``CancelledError`` that its errands kept from the caller.

        At the caller's next ``await`` it would be too late for an ``asyncio.timeout`` around this call.
        """
        try:
            return await call(*arguments, **options)
        finally:
            task = _current_task()
            if task in self._struck:
                self._struck.discard(task)
                await asyncio.sleep(0)

    def note(self, coroutine: Coroutine[Any, Any, Any], name: str) -> Coroutine[Any, Any, Any]:
        """Returns this coroutine, which is given to users' code; if nobody awaits it, ``result`` raises an error.

        Args:
            name: as the error is to call it.
        """
        return self._unawaited.note(coroutine, name)

    async def _main(self, function: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...]) -> None:
        try:
            self._result = await function(*arguments)
        except BaseException as error:  # raised again in the thread, as if it had made the call
            self._error = error

    def _over(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before its first step
            self._error = asyncio.CancelledError()
        self._errands.put(None)


class _Errand:
    """One call on a coroutine's behalf."""

    def __init__(
        self,
        context: Context,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._context = context
        self._function = function
        self._arguments = arguments
        self._loop = loop
        self.outcome: asyncio.Future[Any] = loop.create_future()

    def run(self) -> None:
        try:
            result = self._context.run(self._function, *self._arguments)
        except BaseException as error:  # raised again in the coroutine, as if it had made the call
            self._loop.call_soon_threadsafe(self._fail, error)
        else:
            self._loop.call_soon_threadsafe(self.outcome.set_result, result)

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, StopIteration):
            # A future refuses StopIteration, which would end the waiting coroutine.
            cause, error = error, RuntimeError("StopIteration was raised")
            error.__cause__ = cause
        self.outcome.set_exception(error)


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:  # pragma: no cover - a coroutine runs in a task
        raise RuntimeError("no task")
    return task
