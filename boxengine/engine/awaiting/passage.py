"""Asynchronous middlewares around an asynchronous call: ``delivering/calls/middleware``, with ``await``."""

from __future__ import annotations

import asyncio
from typing import Any

from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.delivering.calls.middleware import Passage
from boxengine.errors import BoxError


class AsyncPassage(Passage):
    """One subject's way, where the middlewares and the innermost call are coroutines."""

    __slots__ = ()

    async def run_async(self) -> None:
        """See ``run``."""
        try:
            await self.enter_async(0)
        except BaseException as error:  # whatever users' code raises
            if ends_the_worker(error):
                raise
            self._note(error)
        finally:
            self._end()

    async def enter_async(self, depth: int) -> Any:
        """See ``enter``."""
        try:
            if depth == len(self._middlewares):
                self.arrived = self._under_way = True
                said = self.answer = await self._innermost(*self._subject)
                self._under_way = False
            else:
                self._reached = depth + 1
                said = await self._middlewares[depth](*self._subject, _AsyncCallNext(self, depth + 1))
        except BaseException as error:
            if ends_the_worker(error):
                raise
            self._note(error)
            raise
        return self._heard(said, depth)

    def _note(self, problem: object) -> None:
        told = isinstance(problem, Exception) or not isinstance(problem, BaseException)
        if isinstance(self.problem, asyncio.CancelledError) and told:
            # Such as the TimeoutError, or the Failure, of a middleware that has cancelled the call.
            self.problem = None
        super()._note(problem)


class _AsyncCallNext:
    """Goes on once; later and concurrent calls get the first answer."""

    __slots__ = ("_answer", "_called", "_depth", "_error", "_passage", "_turn")

    def __init__(self, passage: AsyncPassage, depth: int) -> None:
        self._passage = passage
        self._depth = depth
        self._called = False
        self._answer: Any = None
        self._error: BaseException | None = None
        self._turn = asyncio.Lock()

    async def __call__(self) -> Any:
        async with self._turn:
            if self._error is not None:
                raise self._error
            if not self._called:
                if self._passage.over:
                    raise BoxError("call_next() was called after its middleware had returned; nothing more is sent")
                self._called = True
                try:
                    self._answer = await self._passage.enter_async(self._depth)
                except BaseException as error:
                    if ends_the_worker(error):
                        raise
                    self._error = error
                    raise
            return self._answer
