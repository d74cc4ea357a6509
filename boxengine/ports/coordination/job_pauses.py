"""Which boxes of long jobs people have paused."""

from __future__ import annotations

from typing import Protocol

from boxengine.domain.jobs import JobBox


class JobPauses(Protocol):
    """Where the jobs are, for long jobs need no other server. Every method may raise ``StoreUnavailable``."""

    def set(self, box: JobBox, *, running: bool, who: str) -> None:
        """Remembers for all workers that the box is paused, or that it runs."""

    def forget(self, box: JobBox, *, who: str) -> None:
        """Nobody has said anything about the box: it follows the configuration again."""

    def running(self, box: JobBox) -> bool | None:
        """Whether it runs, as a person decided; None: nobody did."""
