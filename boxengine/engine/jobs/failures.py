"""What a failed attempt leads to."""

from __future__ import annotations

from boxengine.domain.jobs import Canceled, Ending, Failed, JobBox, Requeued
from boxengine.engine.attempt import error_log
from boxengine.engine.jobs.run import Run
from boxengine.ports import Clock, ErrorTracker


class Failures:
    """Of one box."""

    def __init__(self, box: JobBox, *, clock: Clock, error_tracker: ErrorTracker) -> None:
        self._box = box
        self._clock = clock
        self._track = error_tracker

    def ending(self, run: Run, error: BaseException) -> Ending:
        """Another attempt while any are left, else the end of the job, of which the error tracker is told."""
        if run.saw_cancel:
            return Canceled()
        job = run.job
        text = error_log(error, where=job.task, now=self._clock.now()).replace("\0", "")
        if job.attempt < job.max_attempts:
            return Requeued(pause=self._box.pause_after(job.attempt), error=text)
        self._track(error, box=self._box.name, job=job.id, task=job.task)
        return Failed(error=text)
