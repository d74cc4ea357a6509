"""What the threads that run jobs are at, as the worker announces it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from boxengine.domain.jobs import JobBox
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.run import Runs
from boxengine.ports import Clock, Engagement


class JobsAtWork:
    """The busy threads of each box. Counted for announcements only, so it costs a job nothing."""

    def __init__(self, runs: Runs, *, clock: Clock) -> None:
        self._runs = runs
        self._clock = clock
        self._handovers: list[tuple[JobBox, Handover]] = []

    def add(self, box: JobBox, handover: Handover) -> None:
        """The jobs of this box are counted, too."""
        self._handovers.append((box, handover))

    def engagements(self) -> list[Engagement]:
        """How many threads run a job of each box now, the one that has been at it for longest first."""
        return sorted(self._busy(), key=lambda each: each.since)

    def _busy(self) -> Iterator[Engagement]:
        for box, handover in self._handovers:
            threads = handover.busy
            if threads:
                now = self._clock.monotonic()
                began = min((run.began for run in self._runs.of(box) if run.is_at_work), default=now)
                since = self._clock.now() - timedelta(seconds=now - began)
                yield Engagement(box=box.name, threads=threads, since=since)
