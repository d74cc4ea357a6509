"""Processes that run handlers, one job at a time each, and what they and the worker say to each other.

The worker sends an ``Order``; the process answers ``Begun``, asks with ``Call`` as often as its handler does, and ends with
``Returned`` or ``Raised``. Values of users travel as JSON, so that neither side needs the other's classes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from boxengine.domain.jobs import ClaimedJob, Held


@dataclass(frozen=True, slots=True)
class Order:
    """To the process: run this job."""

    job: ClaimedJob
    until: float
    """Monotonic time at which the process ends itself, unless it hears of a later one: the lease is about to end."""


@dataclass(frozen=True, slots=True)
class Prolonged:
    """To the process: the lease of the job that it runs has been prolonged."""

    held: Held
    until: float


@dataclass(frozen=True, slots=True)
class Answer:
    """To the process: what its ``Call`` came to."""

    value: bool | None = None
    error: str | None = None
    """The class of what was raised, one of ``boxengine.errors``."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """From the process: it is about to call the handler."""


@dataclass(frozen=True, slots=True)
class Call:
    """From the process: the handler asks something of its job, and waits."""

    what: str
    value: str = "null"
    """The argument, as JSON."""


@dataclass(frozen=True, slots=True)
class Returned:
    """From the process: the handler's result, as JSON."""

    result: str


@dataclass(frozen=True, slots=True)
class Raised:
    """From the process: what the handler raised."""

    kind: str
    """The class's name."""
    reason: str
    frames: str


ToProcess = Order | Prolonged | Answer
FromProcess = Begun | Call | Returned | Raised


class ProcessGone(Exception):
    """The process has ended; the message says how, as the end of a sentence that begins with "it"."""


class HandlerProcess(Protocol):
    """One process. Belongs to the thread that borrowed it, but for ``kill``."""

    def send(self, message: ToProcess) -> None:
        """Raises ``ProcessGone``."""

    def receive(self, within: float) -> FromProcess | None:
        """The next message; None: none came within so many seconds.

        Raises:
            ProcessGone: none will come any more.
        """

    def kill(self) -> None:
        """Ends the process at once, and with it the processes that it has started. From any thread, as often as one likes."""


class HandlerProcesses(Protocol):
    """The processes of one box."""

    def borrow(self) -> AbstractContextManager[HandlerProcess]:
        """A process that is idle, or a new one. It is kept for the next job, unless the block raises ``ProcessGone``, or has
        killed it."""

    @property
    def closed(self) -> bool:
        """Whether all have been ended, because the worker stops."""
