"""The event loop of a simulated worker: a coroutine's steps are taken by the strand of the thread that waits for it."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.simulation.scheduler import Scheduler, Strand


@dataclass(frozen=True)
class Pause:
    """``await Pause(seconds)``: virtual time passes, unless the coroutine is cancelled."""

    seconds: float

    def __await__(self) -> Generator[Pause, None, None]:
        yield self


@dataclass(frozen=True)
class _Errand:
    """What the thread is to do for the coroutine. It comes to its end, cancelled or not."""

    call: Callable[[], Any]

    def __await__(self) -> Generator[_Errand, Any, Any]:
        return (yield self)


class SimulatedLoop:
    """In place of ``EventLoop``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def visit(self) -> SimulatedVisit:
        return SimulatedVisit(self._scheduler)


class SimulatedVisit:
    """In place of ``Visit``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._coroutine: Coroutine[Any, Any, Any] | None = None
        self._asleep: Strand | None = None
        self._cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None

    def begin(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any, name: str) -> None:
        self._coroutine = function(*arguments)

    def wait(self) -> None:
        coroutine = self._coroutine
        assert coroutine is not None
        step: Callable[[], Any] = partial(coroutine.send, None)
        try:
            while True:
                step = self._next(coroutine, step())
        except StopIteration as end:
            self._result = end.value
        except (Exception, CancelledError) as error:
            self._error = error
        finally:
            coroutine.close()  # of a worker that has died

    def cancel(self) -> None:
        self._cancelled = True
        if self._asleep is not None:
            self._asleep.wake_at = self._scheduler.now

    def errand(self, function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return _Errand(partial(function, *arguments))

    def note(self, coroutine: Any, _name: str) -> Any:
        return coroutine

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def _next(self, coroutine: Coroutine[Any, Any, Any], awaited: Pause | _Errand) -> Callable[[], Any]:
        """How the coroutine goes on after what it has awaited."""
        answer = None
        if isinstance(awaited, Pause):
            self._sleep(awaited.seconds)
        else:
            try:
                answer = awaited.call()
            except Exception as error:  # raised again in the coroutine, as if it had made the call
                return partial(coroutine.throw, error)
        if self._cancelled:
            self._cancelled = False
            return partial(coroutine.throw, CancelledError())
        return partial(coroutine.send, answer)

    def _sleep(self, seconds: float) -> None:
        if self._cancelled:
            return
        self._asleep = self._scheduler.current
        try:
            self._scheduler.sleep(seconds)
        finally:
            self._asleep = None
