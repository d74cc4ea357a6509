"""Processes that run handlers, each one job at a time, and the messages between them and the worker.

The worker sends an ``Order``, and ``Prolonged`` whenever the lease was prolonged. The process answers ``Begun``, sends a
``Call`` when its handler asks for something, and ends with ``Returned``, ``Refused`` or ``Raised``. Users' values travel as
JSON, so that neither side needs the other's classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from boxengine.domain.jobs import ClaimedJob, Held


@dataclass(frozen=True, slots=True)
class Order:
    """To the process: run this job."""

    job: ClaimedJob
    until: float
    """Monotonic time at which the process ends itself, because the lease is about to end; ``Prolonged`` moves it."""
    trace_context: Mapping[str, str] = field(default_factory=dict)
    """Headers that name the attempt's trace; empty: nobody follows it."""


@dataclass(frozen=True, slots=True)
class Prolonged:
    """To the process: the lease of the job that it runs has been prolonged."""

    held: Held
    until: float


@dataclass(frozen=True, slots=True)
class Answer:
    """To the process: the result of its ``Call``."""

    value: bool | None = None
    error: str | None = None
    """The name of the raised exception's class, from ``boxengine.errors``."""
    text: str = ""
    number: int = 0
    """That of the ``Call``."""


@dataclass(frozen=True, slots=True)
class Begun:
    """From the process: it is about to call the handler."""


Asked = Literal["cancelled", "stopping", "ensure_held", "progress", "checkpoint", "retry"]
"""The member of ``ProcessJob`` that a handler has used."""


@dataclass(frozen=True, slots=True)
class Call:
    """From the process: the handler asks its job for something, and waits."""

    what: Asked
    value: str = "null"
    """The argument, as JSON."""
    number: int = 0
    """Which call of the process it is."""


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


@dataclass(frozen=True, slots=True)
class Refused:
    """From the process: the handler returned a ``Failure``."""

    reason: str


ToProcess = Order | Prolonged | Answer
FromProcess = Begun | Call | Returned | Refused | Raised


class ProcessGone(Exception):
    """The process has ended. The message says how; it completes a sentence that begins with "it"."""


class HandlerProcess(Protocol):
    """One process. Only the thread that borrowed it may use it, except for ``kill``."""

    def send(self, message: ToProcess) -> None:
        """Raises ``ProcessGone``."""

    def receive(self, within: float) -> FromProcess | None:
        """The next message; None: none came within this many seconds.

        Raises:
            ProcessGone: no more messages will come.
        """

    def kill(self) -> None:
        """Ends the process and the processes that it has started, at once. Any thread may call this, and repeatedly."""


class HandlerProcesses(Protocol):
    """The processes of one box."""

    def borrow(self) -> AbstractContextManager[HandlerProcess]:
        """An idle process, or a new one. It is kept for the next job unless the block raises ``ProcessGone`` or kills it."""

    @property
    def closed(self) -> bool:
        """Whether all processes have been ended, because the worker stops."""
