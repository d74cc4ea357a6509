"""Middlewares composed around a call; the first in the list is outermost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from boxengine.engine.pipeline import Middleware


def compose(middlewares: Sequence[Middleware], innermost: Callable[..., Any]) -> Callable[..., Any]:
    """``innermost`` wrapped so that each middleware is called with the same arguments and a ``call_next`` of no arguments.

    With no middlewares it is ``innermost`` itself: nothing is paid for what is not used.
    """
    call = innermost
    for middleware in reversed(middlewares):
        call = _around(middleware, call)
    return call


def _around(middleware: Middleware, inner: Callable[..., Any]) -> Callable[..., Any]:
    def call(*subject: Any) -> Any:
        return middleware(*subject, partial(inner, *subject))

    return call
