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
    """The transport is not tried before this moment; None: not before the hanging call returns."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engagement:
    """What some threads of a worker are doing."""

    box: str
    threads: int
    since: datetime
    """When the thread began that has been doing this for longest. A thread with endless work begins anew about every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a running worker process says about itself."""

    id: str
    """Random; new at each start."""
    host: str
    pid: int
    boxes: tuple[str, ...]
    """Names of the outboxes and inboxes it works on."""
    threads: int
    """Threads that deliver items or run long jobs."""
    started_at: datetime
    circuits: tuple[OpenCircuit, ...] = ()
    """The circuits that were open at the announcement."""
    version: str | None = None
    """The version of boxengine; None: an earlier version, which did not announce it."""
    at_work: tuple[Engagement, ...] | None = None
    """What its threads were doing at the announcement; None: not announced."""
    database: str | None = None
    """Distinguishes its database from others; None: unknown, or a version that did not announce it."""
    job_boxes: tuple[str, ...] = ()
    """Names of the boxes of long jobs it works on; empty also in a version that did not announce them."""


class Workers(Protocol):
    """Which worker processes are alive, for people to see. Nothing depends on it."""

    def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
        """The worker counts as alive for ``ttl`` from now. One round trip, or, in a database, one for each of its job boxes."""

    def withdraw(self, worker_id: str) -> None:
        """The worker has stopped."""

    def living(self) -> list[WorkerInfo]:
        """The workers whose announcement has not expired, the longest running first."""
