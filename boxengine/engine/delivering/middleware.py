"""Middlewares around a call; the first in the list is outermost.

The innermost call has the last word on success: a middleware may fail what went well, never the other way round. So what
happens is kept here, and not read from what the outermost middleware returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from boxengine.engine.answers import failed, refusal
from boxengine.engine.attempt import ends_the_worker, reason_of
from boxengine.engine.delivering.pipeline import Middleware
from boxengine.errors import BoxError


class NotCalledOn(BoxError):
    """A middleware returned without calling ``call_next``, so the innermost call was not made."""


class Refused(BoxError):
    """A middleware returned ``False``, a ``Failure``, or something that cannot be understood."""


def compose(middlewares: Sequence[Middleware], innermost: Callable[..., Any]) -> Callable[..., Any]:
    """``innermost`` with the middlewares around it; returns what ``innermost`` returns, whatever they return.

    It raises what one of them raised first, ``Refused`` or ``NotCalledOn``. With no middlewares it is ``innermost`` itself:
    nothing is paid for what is not used.
    """
    if not middlewares:
        return innermost

    def call(*subject: Any) -> Any:
        passage = Passage(middlewares, innermost, *subject)
        passage.run()
        return passage.value()

    return call


class Passage:
    """One subject's way through the middlewares, and what was said on it."""

    __slots__ = ("_innermost", "_middlewares", "_subject", "answer", "arrived", "over", "problem")

    def __init__(self, middlewares: Sequence[Middleware], innermost: Callable[..., Any], *subject: Any) -> None:
        self._middlewares = middlewares
        self._innermost = innermost
        self._subject = subject
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
            self.over = True

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
            return Refused(f"a middleware refused: {reason_of(self.problem)}")
        return None if self.arrived else NotCalledOn("a middleware did not call call_next()")

    def enter(self, depth: int) -> Any:
        """Calls the middleware of that depth, or the innermost call; what its caller sees as the result."""
        try:
            if depth == len(self._middlewares):
                self.arrived = True
                said = self.answer = self._innermost(*self._subject)
            else:
                said = self._middlewares[depth](*self._subject, _CallNext(self, depth + 1))
        except BaseException as error:
            if ends_the_worker(error):
                raise
            self._note(error)
            raise
        return self._heard(said)

    def _heard(self, said: object) -> Any:
        """What the caller of somebody sees who has said this."""
        if said is not None and failed(said):
            self._note(refusal(said))
        return self.answer if self.problem is None or isinstance(self.problem, BaseException) else self.problem

    def _note(self, problem: object) -> None:
        if self.problem is None:
            self.problem = problem


class _CallNext:
    """Goes on once; called again it does nothing, and gives the first answer again."""

    __slots__ = ("_answer", "_called", "_depth", "_error", "_passage")

    def __init__(self, passage: Passage, depth: int) -> None:
        self._passage = passage
        self._depth = depth
        self._called = False
        self._answer: Any = None
        self._error: BaseException | None = None

    def __call__(self) -> Any:
        if self._error is not None:
            raise self._error
        if not self._called:
            if self._passage.over:
                raise BoxError("call_next() was called after its middleware had returned; nothing more is sent")
            self._called = True
            try:
                self._answer = self._passage.enter(self._depth)
            except BaseException as error:
                if ends_the_worker(error):
                    raise
                self._error = error
                raise
        return self._answer
