"""Turns a handler's answer, or its error, into the outcome of the attempt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from boxengine.domain.jobs import Canceled, Ending, Failed, JobBox, Requeued, Succeeded
from boxengine.domain.json_values import json_text
from boxengine.domain.outcome import Failure
from boxengine.engine.answers import A_HANDLER, refusal, unfinished
from boxengine.engine.attempt import error_log, reason_of
from boxengine.engine.jobs.run import Run
from boxengine.errors import InvalidItem, JobTimeout
from boxengine.ports import Clock, ErrorTracker

NOTHING_RETURNED = Succeeded()
"""Of most short jobs."""


class Endings:
    """Decides the outcomes of one box's attempts."""

    def __init__(self, box: JobBox, *, clock: Clock, error_tracker: ErrorTracker) -> None:
        self._box = box
        self._clock = clock
        self._track = error_tracker

    def answered(self, run: Run, result: object, *, awaited: bool = False) -> Ending:
        """The job is done, unless the handler has returned a failure, or a result that cannot be kept.

        Args:
            awaited: whether this handler would be awaited if it were ``async def``.
        """
        if result is None:
            return NOTHING_RETURNED
        if isinstance(result, Failure | BaseException):
            return self.failure(run, result)
        if unfinished(result):
            problem = refusal(result, awaited=A_HANDLER if awaited else None)
            return self.failure(run, InvalidItem(f"the handler {reason_of(problem)}"))
        try:
            json_text(result)
        except ValueError as error:
            return self.failure(run, InvalidItem(f"the handler's result: expected what JSON can hold: {error}"))
        return Succeeded(result=result)

    def failure(self, run: Run, problem: object) -> Ending:
        """Another attempt if any are left, else the end of the job, which the error tracker is told.

        Args:
            problem: an error, or a ``Failure``.
        """
        if run.saw_cancel:
            return Canceled()
        job = run.job
        text = error_log(problem, where=job.task, now=self._clock.now()).replace("\0", "")
        if job.attempt < job.max_attempts:
            return Requeued(pause=self._box.pause_after(job.attempt), error=text)
        error = problem if isinstance(problem, BaseException) else text
        self._track(error, box=self._box.name, job=job.id, task=job.task)
        return Failed(error=text)

    def overdue(self) -> JobTimeout:
        """The error of an attempt that ran into the box's ``timeout``."""
        limit = self._box.timeout or timedelta(0)
        return JobTimeout(f"no end within {limit.total_seconds():g} s (timeout); the handler was stopped")

    def track_together(self, runs: Sequence[Run], error: BaseException) -> None:
        """Tells the error tracker of a handler of many jobs that has failed as a whole, whatever attempts are left."""
        self._track(error, box=self._box.name, task=runs[0].job.task, jobs=[run.job.id for run in runs])
