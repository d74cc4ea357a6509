"""Takes jobs away from workers that fell silent, and deletes finished ones."""

from __future__ import annotations

from datetime import timedelta

from boxengine.domain.jobs import JobBox
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.timing import JobTiming
from boxengine.ports.jobs import JobLoad, JobObserver, JobsReaped, JobStore


class Reaper:
    """Reaps one box. Every worker has a reaper; whichever looks first finds all there is."""

    def __init__(
        self, box: JobBox, *, store: JobStore, handover: Handover, observer: JobObserver, timing: JobTiming
    ) -> None:
        self._box = box
        self._store = store
        self._handover = handover
        self._observer = observer
        self._timing = timing

    def turn(self) -> timedelta:
        """Reaps once, and deletes a batch.

        The next turn comes when the next lease ends, before a job claimed meanwhile could lose its own, and soon if there may
        be more to delete.
        """
        reaped = self._store.reap(self._box)
        if reaped.requeued or reaped.lost:
            self._observer.see(JobsReaped(self._box, requeued=len(reaped.requeued), lost=len(reaped.lost)))
        self._observer.see(JobLoad(self._box, running=self._handover.busy, threads=self._handover.threads))
        deleted = self._store.delete_finished(self._box)
        shortest = timedelta(seconds=self._timing.reaper_shortest)
        latest = min(timedelta(seconds=self._timing.reaper), self._box.lease_ttl)
        if deleted >= self._box.deletion_batch_size:
            return min(latest, shortest)
        if reaped.next_expiry is None:
            return latest
        return min(latest, max(shortest, reaped.next_expiry))
