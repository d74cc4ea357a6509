"""Which boxes of long jobs people have paused."""

from __future__ import annotations

from typing import Protocol

from boxengine.domain.jobs import JobBox


class JobPauses(Protocol):
    """Pauses in the jobs' own database, because long jobs need no other server. Every method may raise ``StoreUnavailable``."""

    def set(self, box: JobBox, *, running: bool, who: str) -> None:
        """Remembers, for all workers, whether the box runs or is paused."""

    def forget(self, box: JobBox, *, who: str) -> None:
        """Forgets what people decided about the box: it follows the configuration again."""

    def running(self, box: JobBox) -> bool | None:
        """Whether a person decided that the box runs; None: nobody decided anything."""
