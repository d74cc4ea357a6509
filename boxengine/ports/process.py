"""The process around the engine: its time, what else runs in it, and its sister processes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time as an argument: no module below the composition root reads it from the system."""

    def now(self) -> datetime:
        """Wall-clock time, with zone UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back, and that continue while the process is stopped."""


class Service(Protocol):
    """Something that runs beside the loops: the probes' server, the metrics' server."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class OtherProcesses(Protocol):
    """The loops of child processes, as their parent sees them."""

    def complaints(self, now: float) -> Iterable[str]:
        """A complaint about each loop that is behind at ``now`` (monotonic seconds)."""

    def not_started(self) -> Iterable[str]:
        """The processes that run no loop, or do not run."""

    def missing(self, now: float) -> Iterable[str]:
        """The servers that each process needs and cannot reach at ``now`` (monotonic seconds)."""
