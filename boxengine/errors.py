"""Everything boxengine raises on purpose, as one tree.

::

    BoxError
    ├── ConfigurationError     the YAML or what it names is wrong; lists every problem found
    ├── UnknownBox             a box name that the configuration does not have
    ├── BadUsage               a command that does not fit the configuration, or lacks an option
    ├── InvalidItem            an item that cannot be written as asked
    ├── Undecodable            a stored payload that its model's codec cannot read
    ├── SchemaMismatch         a box's table lacks what the box needs
    ├── NoAnswerInTime         a transport's call took longer than its ``timeout``
    ├── PortTaken              a port for probes or metrics cannot be had
    ├── JobLost                a worker's job was taken away from it, or may be at any moment
    ├── CheckpointLost         the database lost a checkpoint of a job that runs, and what was written with it
    ├── JobTimeout             an attempt at a job took longer than its box's ``timeout``
    ├── JobRaised              what a handler raised that runs in a process of its own
    ├── JobProcessDied         the process of a handler ended, or was killed, before the handler did
    ├── JobRetry               a handler has asked for another attempt (``job.retry()``)
    └── Unavailable            a server did not answer; the loops wait and try again
        ├── StoreUnavailable   the database
        │   ├── StoreConflict  another transaction was in the way; nothing is wrong with the server
        │   ├── TransactionLost  what handlers write through is gone, and their batch with it
        │   ├── TransactionUndone  the same because another transaction was in the way: a StoreConflict, too
        │   ├── StoreTooSlow   a statement took longer than it may; the server answers others
        │   ├── NotPermitted   the account lacks a privilege; the server answers for other tables
        │   └── TableMissing   a table does not exist; the server answers for others
        ├── QueueUnavailable   Redis
        ├── SourceUnavailable  the broker that an inbox is fed from
        └── GraveUnavailable   the place where dead letters go

Errors of drivers (SQLAlchemy, redis-py, librdkafka) are translated where they enter, with the
original kept as ``__cause__``.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

_OWN = str(Path(__file__).parent)


class BoxError(Exception):
    """Base of all errors that boxengine raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the configuration: where it is and what was expected."""

    file: str
    """Empty: there is none."""
    path: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.path, self.message) if part)


class ConfigurationError(BoxError):
    """The configuration is wrong; ``problems`` holds all that was found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UnknownBox(BoxError):
    """A box that the configuration does not name, or one that only its subscriptions can stand for."""

    def __init__(self, name: str, known: Iterable[str], *, instead: str | None = None) -> None:
        """Args:
        instead: what the box is, and what to use for it, where the name belongs to a box of another kind.
        """
        self.name = name
        self.known = tuple(sorted(known))
        if instead is not None:
            super().__init__(f"box {name!r} {instead}")
            return
        subscriptions = ", ".join(each for each in self.known if each.startswith(f"{name}."))
        if subscriptions:
            super().__init__(f"box {name!r} has subscriptions: name one of them: {subscriptions}")
            return
        choices = f"known boxes: {', '.join(self.known)}" if self.known else "no box of this kind is configured"
        super().__init__(f"unknown box {name!r}; {choices}")


class BadUsage(BoxError):
    """A command that does not fit the configuration, or whose options do not say enough. Nothing was done."""


class InvalidItem(BoxError):
    """An item that cannot be written: no event key, a payload of the wrong type, an unknown attribute."""


class Undecodable(BoxError):
    """A stored payload that the codec of its model cannot read, or a box whose model names none. Fails that item alone."""


class SchemaMismatch(BoxError):
    """A box's table is missing, or lacks a column that the box needs."""


class NoAnswerInTime(BoxError):
    """A transport's call took longer than its ``timeout``. Whether the receiver got the items is unknown."""


class PortTaken(BoxError):
    """A port for probes or metrics cannot be had; the message names the key to change."""


class JobLost(BoxError):
    """The job is no longer this worker's, or its lease is about to end. Nothing can be written for it any more.

    Raised by whatever the handler does with its job, and, in a thread that computes, between two lines of its own code. A
    handler lets it pass; what it has not committed is undone.
    """


class CheckpointLost(BoxError):
    """The database does not have the last checkpoint of the attempt, nor what the session wrote with it. The attempt has failed.

    Raised by the next checkpoint, or after the handler has returned. The next attempt goes on from the checkpoint that is there.
    """


class JobTimeout(BoxError):
    """The attempt took longer than the ``timeout`` of its box, and has failed.

    Rises in the handler's own code, between two lines of it. A handler lets it pass, or cleans up; otherwise it rises again.
    """


class JobRaised(BoxError):
    """What a handler raised in a process of its own. Error trackers get it in place of the original, which stays there.

    Args:
        reason: type and text of the original, as in ``ValueError: no such file``.
        frames: the original's traceback, as text.
    """

    def __init__(self, reason: str, frames: str = "") -> None:
        super().__init__(reason)
        self.frames = frames


class JobProcessDied(BoxError):
    """The process of a handler ended before the handler did: the message names the signal or the exit code."""


class JobRetry(BoxError):
    """How ``job.retry()`` ends the handler. A handler lets it pass."""


class Unavailable(BoxError):
    """A server did not answer. Nothing is lost: the loops wait and try again.

    A transport raises it, or returns it for single items of a batch, where its receiver cannot be reached at all: that
    is no item's fault, so no attempt is counted, and the items stay pending.

    Args:
        retry_after: seconds for which the receiver asked to be left alone; its circuit opens for so long at once. Anything that
            is no number, such as a date, is ignored: an outage must not become a failed attempt on its account.
    """

    retry_after: float | None = None

    def __init__(self, *args: object, retry_after: float | None = None) -> None:
        super().__init__(*args)
        if retry_after is not None:
            with suppress(TypeError, ValueError):
                self.retry_after = float(retry_after)


class StoreUnavailable(Unavailable):
    """The database did not answer or broke the connection."""


class StoreConflict(StoreUnavailable):
    """Another transaction was in the way (a deadlock, a lock that did not come free): trying again is all it takes."""


class TransactionLost(StoreUnavailable):
    """The transaction through which handlers write is gone: nothing of its batch can be recorded any more."""

    BY_A_HANDLER: ClassVar[str] = (
        "a handler has ended the transaction of its batch (COMMIT, ROLLBACK, DDL, a deadlock): leave commit and rollback to the "
        "engine"
    )
    """The sentence for people where a handler has ended it."""
    item_ids: Iterable[Any] = ()
    """Of the items whose handler was at work."""


class TransactionUndone(TransactionLost, StoreConflict):
    """The server has undone the whole transaction of a batch because another one was in the way, as MySQL does in a deadlock."""


class StoreTooSlow(StoreUnavailable):
    """The database canceled a statement that took longer than it may. Others may be answered."""


class NotPermitted(StoreUnavailable):
    """The database answered that the account lacks a privilege on a table. It may have those on others."""


class TableMissing(StoreUnavailable):
    """The database answered that a table does not exist. Others may be there."""


class QueueUnavailable(Unavailable):
    """Redis did not answer or broke the connection."""


class SourceUnavailable(Unavailable):
    """The broker that an inbox is fed from did not answer, or refused."""


class GraveUnavailable(Unavailable):
    """The place where dead letters go did not answer, or refused one. Its partition waits; the others go on."""


class Abandoned(BaseException):
    """The worker itself is gone. Passes through everything that catches what users' code raises.

    Nothing in a running worker raises it; a simulated crash does.
    """


def described(error: BaseException) -> str:
    """What a user's code raised, with its type and its place: ``KeyError: 'nope' (shop.py:12)``."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if "importlib" not in frame.filename and not frame.filename.startswith(_OWN)]
    return f"{text} ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else text
