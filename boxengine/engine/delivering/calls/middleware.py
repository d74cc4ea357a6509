"""Middlewares around a call; the first in the list is outermost.

The innermost call has the last word on success: a middleware may fail what went well, never the other way round. So what
happens is kept here, and not read from what the outermost middleware returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from boxengine.engine.answers import A_MIDDLEWARE, failed, refusal, ungrouped
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.engine.delivering.calls.pipeline import Middleware
from boxengine.errors import BoxError


class NotCalledOn(BoxError):
    """A middleware returned without calling ``call_next``, so the innermost call was not made."""


class Refused(BoxError):
    """A middleware returned ``False``, a ``Failure``, or something that cannot be understood."""


class Passage:
    """One subject's way through the middlewares, and what was said on it."""

    __slots__ = (
        "_culprit",
        "_innermost",
        "_middlewares",
        "_reached",
        "_subject",
        "_under_way",
        "answer",
        "arrived",
        "over",
        "problem",
    )
    awaited: ClassVar[str | None] = A_MIDDLEWARE
    """What to call a middleware that may be ``async def``; None: it may not."""

    def __init__(self, middlewares: Sequence[Middleware], innermost: Callable[..., Any], *subject: Any) -> None:
        self._middlewares = middlewares
        self._innermost = innermost
        self._subject = subject
        self._reached = 0
        """How many of the middlewares have been called."""
        self._culprit = 0
        """Which of them refused, where one did."""
        self._under_way = False
        """Whether the innermost call has begun and not returned."""
        self.arrived = False
        """Whether the innermost call was made."""
        self.answer: Any = None
        """What it returned."""
        self.problem: object = None
        """What failed first: an error that was raised, ``False``, a ``Failure`` or ``Unavailable``. None: nothing did."""
        self.over = False

    def run(self) -> None:
        """Goes the whole way. Raises nothing that a middleware or the innermost call raises: that is ``problem``."""
        try:
            self.enter(0)
        except BaseException as error:  # whatever users' code raises
            if ends_the_worker(error):
                raise
            self._note(error)
        finally:
            self._end()

    def value(self) -> Any:
        """What the innermost call returned.

        Raises:
            NotCalledOn: it was not made.
            Refused: a middleware refused. What was raised comes through.
        """
        error = self.error
        if error is not None:
            raise error
        return self.answer

    @property
    def error(self) -> BaseException | None:
        """Why there is nothing that the innermost call returned; None where all is well."""
        if isinstance(self.problem, BaseException):
            return self.problem
        if self.problem is not None:
            return Refused(f"{self._named(self._culprit)} refused: {reason_of(self.problem)}")
        return None if self.arrived else NotCalledOn(f"{self._named(self._reached - 1)} did not call call_next()")

    def _named(self, place: int) -> str:
        if place >= len(self._middlewares):
            return "the call inside the middlewares"
        middleware = inspect.unwrap(self._middlewares[place])
        named: Any = middleware if hasattr(middleware, "__qualname__") else type(middleware)
        return f"middleware {named.__module__}.{named.__qualname__}"

    def enter(self, depth: int) -> Any:
        """Calls the middleware of that depth, or the innermost call; what its caller sees as the result."""
        try:
            if depth == len(self._middlewares):
                self.arrived = self._under_way = True
                said = self.answer = self._innermost(*self._subject)
                self._under_way = False
            else:
                self._reached = depth + 1
                said = self._middlewares[depth](*self._subject, _call_next(self, depth + 1))
        except BaseException as error:
            if ends_the_worker(error):
                raise
            self._note(error)
            raise
        if self.problem is None and (said is None or said is True):
            return self.answer  # as nearly always, without one more call
        return self._heard(said, depth)

    def _heard(self, said: object, depth: int) -> Any:
        """What the caller of somebody sees who has said this."""
        if said is not None and failed(said):
            if self.problem is None:
                self._culprit = depth
            self._note(refusal(said, awaited=self.awaited))
        return self.answer if self.problem is None or isinstance(self.problem, BaseException) else self.problem

    def _end(self) -> None:
        self.over = True
        if self._under_way and self.problem is None:
            # A middleware has called it in a thread or task of its own, and has not waited. Nobody knows its answer.
            self._note(BoxError("a middleware returned before its call_next() did: wait for it, or return a Failure"))

    def _note(self, problem: object) -> None:
        if self.problem is None:
            self.problem = ungrouped(problem) if isinstance(problem, BaseException) else problem


class PlainPassage(Passage):
    """A way through middlewares that must not be ``async def``."""

    __slots__ = ()
    awaited = None


def compose(
    middlewares: Sequence[Middleware], innermost: Callable[..., Any], *, kind: type[Passage] = Passage
) -> Callable[..., Any]:
    """``innermost`` with the middlewares around it; returns what ``innermost`` returns, whatever they return.

    It raises what one of them raised first, ``Refused`` or ``NotCalledOn``. With no middlewares it is ``innermost`` itself:
    nothing is paid for what is not used.

    Args:
        kind: of the passage, which says whether the middlewares may be ``async def``.
    """
    if not middlewares:
        return innermost

    def call(*subject: Any) -> Any:
        passage = kind(middlewares, innermost, *subject)
        passage.run()
        return passage.value()

    return call


def _call_next(passage: Passage, depth: int) -> Callable[[], Any]:
    """Goes on once; called again it does nothing, and gives the first answer again.

    One is made for each item that goes through a middleware: a function costs half of what an object with ``__call__`` does.
    """
    called = False
    answer: Any = None
    error: BaseException | None = None

    def call_next() -> Any:
        nonlocal called, answer, error
        if error is not None:
            raise error
        if not called:
            if passage.over:
                raise BoxError("call_next() was called after its middleware had returned; nothing more is sent")
            called = True
            try:
                answer = passage.enter(depth)
            except BaseException as raised:
                if ends_the_worker(raised):
                    raise
                error = raised
                raise
        return answer

    return call_next
