"""Which worker processes are alive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCircuit:
    """A transport that a worker leaves alone for a while, because its receiver could not be reached."""

    box: str
    transport: str
    since: datetime
    next_try: datetime | None
    """Not before this moment; None: when the call that hangs comes back."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """What some threads of a worker are doing."""

    box: str
    threads: int
    since: datetime
    """When the one began that has been at it for longest; a thread that has no end of work begins anew every second or so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a running worker process says about itself."""

    id: str
    """Random; another one after each start."""
    host: str
    pid: int
    boxes: tuple[str, ...]
    """Names of the boxes it works on."""
    threads: int
    """Threads of the processor."""
    started_at: datetime
    circuits: tuple[OpenCircuit, ...] = ()
    """The circuits that were open at the announcement."""
    version: str | None = None
    """The version of boxengine; None: an earlier one, which did not say."""
    at_work: tuple[Engagement, ...] | None = None
    """What its threads were doing at the announcement; None: not said."""
    database: str | None = None
    """Tells its database from others; None: it does not know, or is of a version that did not say."""


class Workers(Protocol):
    """Which worker processes are alive, for people to see. Nothing depends on it."""

    def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
        """The worker counts as alive for ``ttl`` from now. One round trip."""

    def withdraw(self, worker_id: str) -> None:
        """The worker has stopped."""

    def living(self) -> list[WorkerInfo]:
        """Those that announced themselves in time, the longest running first."""
