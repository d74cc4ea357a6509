"""Makes ``async def`` middlewares into the plain ones that the engine calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from boxengine.engine.answers import asynchronous
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.delivering.calls.pipeline import Middleware


class Awaited:
    """One asynchronous middleware. Its ``await call_next()`` runs in the thread that waits for the middleware.

    So everything that it wraps (other middlewares, the claim's session, a plain transport) runs in the same thread as it
    would without it.
    """

    def __init__(self, middleware: Middleware, loop: EventLoop) -> None:
        self.__wrapped__ = middleware
        self._loop = loop
        self._name = f"middleware {getattr(middleware, '__qualname__', None) or type(middleware).__qualname__}"

    def __call__(self, subject: Any, call_next: Callable[[], Any]) -> Any:
        visit = self._loop.visit()

        async def go_on() -> Any:
            return await visit.settled(visit.errand, call_next)

        visit.begin(self.__wrapped__, subject, go_on, name=self._name)
        visit.wait()
        return visit.result()


def awaited(middlewares: Sequence[Middleware], loop: EventLoop) -> tuple[Middleware, ...]:
    """The same middlewares, with those that are ``async def`` made callable by threads."""
    return tuple(Awaited(each, loop) if asynchronous(each) else each for each in middlewares)
