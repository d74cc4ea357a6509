"""Failed attempts: what is written about them."""

from __future__ import annotations

import traceback
from datetime import datetime

from boxengine.domain.item import rfc3339
from boxengine.domain.outcome import Failure

TRACEBACK_LINES = 30


def reason_of(problem: object) -> str:
    """One sentence for what a transport answered or raised: with the causes of an error, outermost last."""
    match problem:
        case Failure(reason=reason):
            return reason
        case BaseException() as error:
            cause = f"{reason_of(error.__cause__)}. " if error.__cause__ is not None else ""
            return f"{cause}{type(error).__name__}: {error}"
        case False:
            return "returned False"
        case _:
            return str(problem)


def error_log(problem: object, *, where: str, now: datetime) -> str:
    """The text for the ``error_log`` column: time, which transport, the reason, at most 30 lines of traceback."""
    lines = [f"{rfc3339(now)} {where}: {reason_of(problem)}"]
    if isinstance(problem, BaseException) and problem.__traceback__ is not None:
        frames = "".join(traceback.format_tb(problem.__traceback__)).splitlines()
        lines += frames[-TRACEBACK_LINES:]
    return "\n".join(lines)
