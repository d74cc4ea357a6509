"""What users' code answers: does it refuse the item, and can the answer be understood at all?"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from concurrent.futures import Future
from contextlib import _AsyncGeneratorContextManager, _GeneratorContextManager
from dataclasses import dataclass
from enum import Enum
from types import CoroutineType, GeneratorType, NotImplementedType
from typing import Any

from boxengine.domain.outcome import Failure, Verdict
from boxengine.engine.attempt import reason_of
from boxengine.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Raised:
    """In place of an answer about one item among several that are under way at once: what was raised."""

    error: BaseException


class Withheld(Enum):
    """In place of an answer: the item was not handed over. It stays pending, and its followers wait."""

    WITHHELD = "withheld"


WITHHELD = Withheld.WITHHELD


class KeptBack(Enum):
    """In place of an answer: a middleware did not call ``call_next()``. The item stays pending, and its followers wait."""

    KEPT_BACK = "kept back"


KEPT_BACK = KeptBack.KEPT_BACK

A_TRANSPORT, A_MIDDLEWARE, A_HANDLER = "__call__ or call_batch itself", "the middleware itself", "the handler itself"
"""What boxengine awaits if it is ``async def``."""
_TO_BE_ENTERED = (_GeneratorContextManager, _AsyncGeneratorContextManager)
"""What a function with contextlib's decorators returns. Other context managers, such as responses, have done their work."""
_UNFINISHED = (Awaitable, Generator, AsyncGenerator, Future, map, filter, zip, *_TO_BE_ENTERED)
"""What has not done its work yet, and never will if nobody waits for it or goes through it."""
_MISTAKES = (BaseException, Verdict, type, NotImplementedType)
_REFUSALS = (Failure, Raised, Withheld, *_MISTAKES, *_UNFINISHED)


def failed(answer: object) -> bool:
    """Whether an answer means that the item is not delivered: it refuses, or it cannot be understood."""
    if answer is None or answer is True:
        return False
    return answer is False or isinstance(answer, _REFUSALS)


def refusal(answer: object, *, awaited: str | None = None) -> object:
    """What to record for an answer that ``failed``: itself, or a ``Failure`` that says why it is not understood.

    Args:
        awaited: whose answer it is, if boxengine awaits that where it is ``async def``; None: it must be plain.
    """
    if answer is False or isinstance(answer, Failure | Unavailable | Withheld):
        return answer
    if isinstance(answer, Raised):
        return answer.error
    discard(answer)
    return Failure(f"returned {_why_not(answer, awaited)}")


def _why_not(answer: object, awaited: str | None) -> str:
    name = "context manager" if isinstance(answer, _TO_BE_ENTERED) else type(answer).__name__.replace("_", " ")
    name = f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
    match answer:
        case BaseException():
            return f"an error instead of raising it: {reason_of(answer)}"
        case Verdict():
            return f"{answer}, which only a retry strategy may return"
        case type():
            return f"the class {answer.__name__}, not an instance of it"
        case Awaitable() | Future():
            advice = "write def, not async def, and wait for the result"
            if awaited is not None and isinstance(answer, Awaitable):
                # A wrapper that is a plain function hides that what it wraps is async def.
                advice = f"make {awaited}, and its decorator's wrapper, async def, and await inside"
            return f"{name} that nobody waits for: {advice}"
        case Generator() | AsyncGenerator() | _GeneratorContextManager() | _AsyncGeneratorContextManager():
            return f"{name} whose code nobody runs: write return, not yield"
    return f"{name} that has done nothing yet: make it a list" if isinstance(answer, _UNFINISHED) else repr(answer)


def ungrouped(error: BaseException) -> BaseException:
    """The ``Unavailable`` in a group of nothing else, as an ``asyncio.TaskGroup`` wraps it; any other error as it is."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    inside = [ungrouped(each) for each in error.exceptions]
    return inside[0] if all(isinstance(each, Unavailable) for each in inside) else error


def unfinished(answer: object) -> bool:
    """Whether it is a coroutine, a generator, a future or the like, whose work is not done."""
    return isinstance(answer, _UNFINISHED)


def discard(answer: object) -> None:
    """Ends a coroutine or a generator that nobody will run, so that Python does not warn about it."""
    if isinstance(answer, CoroutineType | GeneratorType):
        answer.close()


def never_runs(call: Any) -> str | None:
    """What kind of function this is, if a plain call only makes an object and runs no code; None for a plain one.

    Looks through ``functools.partial``, bound methods and objects with ``__call__``.
    """
    while isinstance(call, functools.partial):
        call = call.func
    if callable(call) and not inspect.isroutine(call) and not isinstance(call, type):
        call = type(call).__call__
    return next((kind for kind, holds in _KINDS.items() if holds(call)), None)


def how_it_would_run(*, awaited: bool) -> str:
    """What to write in place of something that ``never_runs``, where a coroutine is ``awaited``, or is not."""
    return "write def or async def, without yield" if awaited else "write a plain def"


def asynchronous(call: Any) -> bool:
    """Whether this is ``async def``. Looks through the same as ``never_runs``."""
    return never_runs(call) == ASYNC


ASYNC = "async def"
_KINDS: dict[str, Callable[[Any], bool]] = {
    "an async generator": inspect.isasyncgenfunction,
    ASYNC: inspect.iscoroutinefunction,
    "a generator (it has yield)": inspect.isgeneratorfunction,
}
