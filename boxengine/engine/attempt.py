"""What users' code raised or answered, in words: for an ``error_log``, an outage, a tracker. And which errors are not its own."""

from __future__ import annotations

import threading
import traceback
from datetime import datetime

from boxengine.domain.item import rfc3339
from boxengine.domain.item_id import ItemId
from boxengine.domain.masking import masked_text
from boxengine.domain.outcome import Failure
from boxengine.errors import Abandoned, JobRaised

TRACEBACK_LINES = 30
LONGEST_REASON = 10_000
"""Characters; some libraries put the whole request into the message."""
MOST_CAUSES = 100
"""Errors that one reason tells of, causes and members of groups. A loop may raise each error from the last without end."""


def ends_the_worker(error: BaseException) -> bool:
    """Whether an error that came out of users' code is not theirs and must be passed on: a crash, or Ctrl-C.

    Only the main thread gets a real Ctrl-C, and no worker delivers in it: there it is a test or a script that is to end. What a
    worker's threads meet was raised by users' code, ``SystemExit`` and ``CancelledError`` too, and fails one attempt.
    """
    in_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, Abandoned) or (isinstance(error, KeyboardInterrupt) and in_main)


# ── for the column error_log ─────────────────────────────────────────────────────────────────────────


def error_log(problem: object, *, where: str, now: datetime) -> str:
    """The text of a failed attempt: time, which transport, the reason, at most 30 lines of traceback.

    Passwords in it are masked, and every database can store it.
    """
    lines = [f"{rfc3339(now)} {located(problem, where)[:LONGEST_REASON]}"]
    if isinstance(problem, BaseException):
        lines += frames_of(problem, last=TRACEBACK_LINES).splitlines()[-TRACEBACK_LINES:]
    return _storable("\n".join(lines))


def discard_log(strategy: object, *, later: ItemId | None, now: datetime) -> str:
    """The text that a discarded item's ``error_log`` begins with: time, which strategy, and why."""
    reason = "says DISCARD" if later is None else f"item {later}, a later one of its key, was delivered"
    return _storable(f"{rfc3339(now)} discarded by {_name(strategy)}: {reason}")


def _name(strategy: object) -> str:
    """Of a class its name, of a function its own."""
    return getattr(strategy, "__qualname__", None) or type(strategy).__qualname__


def _storable(text: str) -> str:
    # Half a surrogate pair, as Python makes it of a file name that is no UTF-8, is no text outside of Python.
    return masked_text(text).encode(errors="replace").decode()


# ── anywhere ─────────────────────────────────────────────────────────────────────────────────────────


def reason_of(problem: object) -> str:
    """One sentence for what a transport answered or raised: with an error's causes, outermost last, and notes (``add_note``)."""
    match problem:
        case Failure(reason=reason):
            return text_of(reason) or "returned a Failure that says nothing"
        case BaseException() as error:
            return _reason(error, known=set())
        case False:
            return "returned False"
        case _:
            return text_of(problem)


def located(problem: object, where: str) -> str:
    """The sentence after the transport, or other part of the engine, that it is about. Built-in transports name themselves."""
    reason = reason_of(problem)
    return reason if reason.startswith(f"{where}: ") else f"{where}: {reason}"


def text_of(value: object) -> str:
    """The error's text. An error whose own text raises must not undo the batch in which it is recorded."""
    try:
        return str(value)
    except BaseException as error:  # users' classes
        return f"(says nothing: {type(error).__name__})"


def frames_of(error: BaseException, *, last: int | None = None) -> str:
    """The error's traceback; if it was raised in another process, the traceback from there.

    Args:
        last: only so many frames. To read all thousand of an endless recursion takes a fifth of a second.
    """
    if isinstance(error, JobRaised):
        return error.frames
    return "".join(traceback.format_tb(error.__traceback__, limit=None if last is None else -last))


def _reason(error: BaseException, *, known: set[int]) -> str:
    """What an error and its causes say.

    Args:
        known: identities of the errors that are told already. ``raise error from error`` makes an error its own cause.
    """
    chain = list[BaseException]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in known and len(known) < MOST_CAUSES:
        known.add(id(cause))
        chain.append(cause)
        cause = None if isinstance(cause, JobRaised) else cause.__cause__
    return ". ".join(_said(each, known=known) for each in reversed(chain))


def _said(error: BaseException, *, known: set[int]) -> str:
    """What one error says, without its causes."""
    said = text_of(error)[:LONGEST_REASON]
    if isinstance(error, JobRaised):
        return said
    inside = _inside(error, known=known) if isinstance(error, BaseExceptionGroup) else ""
    return f"{type(error).__name__}{f': {said}' if said else ''}{inside}{_notes(error)}{_advice(error)}"


def _inside(group: BaseExceptionGroup[BaseException], *, known: set[int]) -> str:
    """What the errors of a group say, such as those of an ``asyncio.TaskGroup``: its own text only counts them."""
    told = "; ".join(filter(None, (_reason(each, known=known) for each in group.exceptions)))
    return f" [{told}]" if told else ""


def _notes(error: BaseException) -> str:
    """What was added to it with ``add_note``."""
    notes = getattr(error, "__notes__", None)
    return "".join(f" ({text_of(note)})" for note in notes) if isinstance(notes, list) else ""


def _advice(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return " (sys.exit() ends no worker: it fails this attempt; raise an error that says what is wrong)"
    return ""
