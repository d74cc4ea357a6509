"""Measures what waits in job boxes, for the metrics.

Every worker measures its boxes, for job boxes have no coordinator that could choose one. All see the same, within seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from boxengine.domain.jobs import JobBox
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.rounds import SOON, Rounds
from boxengine.engine.timing import TIMING
from boxengine.errors import Unavailable
from boxengine.ports import Clock
from boxengine.ports.jobs import JobObserver, JobStore, JobsWaiting

INTERVAL = timedelta(seconds=TIMING.measured)
COUNTED_TO = 10_000


class JobBacklogWatch:
    """Measures the boxes of one worker. One thread runs its turns."""

    def __init__(
        self, boxes: Sequence[JobBox], *, store: JobStore, outages: Outages, observer: JobObserver, clock: Clock
    ) -> None:
        self._rounds = Rounds(boxes, clock=clock)
        self._store = store
        self._outages = outages
        self._observer = observer

    def turn(self) -> timedelta:
        """Measures all boxes, or as many as the time allows; returns the pause until the next turn."""
        for box in self._rounds.turn():
            self._measure(box)
        return SOON if self._rounds.cut_short else INTERVAL

    def _measure(self, box: JobBox) -> None:
        what = f"measuring {box.name}"
        try:
            self._observer.see(JobsWaiting(box, self._store.backlog(box, limit=COUNTED_TO)))
        except Unavailable:
            return  # the loops that need the database report its outage; there is nothing to measure
        except Exception as error:  # one box's trouble must not stop the others
            self._outages.failed(what, error)
            return
        self._outages.worked(what)
