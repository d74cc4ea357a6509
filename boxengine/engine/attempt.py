"""Failed attempts: what is written about them."""

from __future__ import annotations

import traceback
from datetime import datetime

from boxengine.domain.item import rfc3339
from boxengine.domain.masking import masked_text
from boxengine.domain.outcome import Failure

TRACEBACK_LINES = 30
LONGEST_REASON = 10_000
"""Characters; some libraries put the whole request into the message."""


def reason_of(problem: object) -> str:
    """One sentence for what a transport answered or raised: with the causes of an error, outermost last."""
    match problem:
        case Failure(reason=reason):
            return _text(reason)
        case BaseException() as error:
            cause = f"{reason_of(error.__cause__)}. " if error.__cause__ is not None else ""
            return f"{cause}{type(error).__name__}: {_text(error)}"
        case False:
            return "returned False"
        case _:
            return _text(problem)


def _text(value: object) -> str:
    """What it says. An error whose own text raises must not undo the batch that it is written down with."""
    try:
        return str(value)
    except Exception as error:  # users' classes
        return f"(says nothing: {type(error).__name__})"


def error_log(problem: object, *, where: str, now: datetime) -> str:
    """The text for the ``error_log`` column: time, which transport, the reason, at most 30 lines of traceback.

    Passwords in it are masked, and every database can store it.
    """
    lines = [f"{rfc3339(now)} {where}: {reason_of(problem)[:LONGEST_REASON]}"]
    if isinstance(problem, BaseException) and problem.__traceback__ is not None:
        frames = "".join(traceback.format_tb(problem.__traceback__)).splitlines()
        lines += frames[-TRACEBACK_LINES:]
    # Half a surrogate pair, as Python makes it of a file name that is no UTF-8, is no text outside of Python.
    return masked_text("\n".join(lines)).encode(errors="replace").decode()
