"""Records how attempts ended, and all that have ended meanwhile together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from boxengine.domain.jobs import Canceled, Failed, JobBox, JobOutcome, Requeued, Succeeded
from boxengine.engine.jobs.endings import Endings
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.run import Run, Runs
from boxengine.errors import StoreUnavailable
from boxengine.ports import Clock
from boxengine.ports.jobs import JobEnded, JobObserver, JobStore

AT_ONCE = timedelta(0)
WAIT = 1.0
"""Seconds for which a turn waits for an end."""
LOST = "lost"
NAMES: Mapping[type, str] = {Succeeded: "succeeded", Requeued: "requeued", Failed: "failed", Canceled: "canceled"}


class Recorder:
    """Records the ends of one box's jobs.

    While it writes, further jobs end, so the busier the box, the more of them share a transaction. A lone job's end is written
    at once. Until its end is written, a job stays this worker's, and its lease is extended.
    """

    def __init__(
        self,
        box: JobBox,
        *,
        store: JobStore,
        handover: Handover,
        runs: Runs,
        clock: Clock,
        observer: JobObserver,
        endings: Endings,
        pause_after_outage: Callable[[BaseException], float],
        worked: Callable[[], object],
    ) -> None:
        """Args:
        pause_after_outage: called when the store does not answer; returns the seconds until the next try.
        worked: called when it answers.
        """
        self._box = box
        self._store = store
        self._handover = handover
        self._runs = runs
        self._clock = clock
        self._observer = observer
        self._endings = endings
        self._pause_after_outage = pause_after_outage
        self._worked = worked

    def turn(self, wait: float = WAIT) -> timedelta:
        """Records once what has ended; returns how long to wait before the next turn."""
        try:
            self._take(wait)
        except StoreUnavailable as error:
            return timedelta(seconds=self._pause_after_outage(error))
        return AT_ONCE

    def finish(self) -> None:
        """Records what is left when the worker stops.

        Raises:
            StoreUnavailable: those jobs run again when their lease is over.
        """
        while self._take(0.0):
            pass

    def tell(self, run: Run, end: str) -> None:
        """Closes a run, and tells the observer how its attempt ended."""
        run.over = True
        self._runs.remove(run)
        seconds = self._clock.monotonic() - run.began
        error = run.ending.error if end != LOST and isinstance(run.ending, Requeued | Failed) else None
        self._observer.see(
            JobEnded(self._box, end=end, seconds=seconds, job=run.job.id, attempt=run.job.attempt, error=error)
        )

    def _take(self, wait: float) -> int:
        runs = self._handover.ended(wait)
        try:
            if runs:
                self._record(runs)
                self._worked()
        finally:
            # Whatever was raised: each run is over now, or must be tried again.
            self._handover.recorded([run for run in runs if not run.over], len(runs))
        return len(runs)

    def _record(self, runs: Sequence[Run]) -> None:
        outcomes = [_outcome(run) for run in runs if not run.is_lost()]
        try:
            written = self._store.record(self._box, outcomes) if outcomes else ()
        except StoreUnavailable:
            _take_back_progress(runs, outcomes)
            raise
        except Exception as error:
            _take_back_progress(runs, outcomes)
            self._record_apart(runs, error)
        else:
            for run in runs:
                self.tell(run, NAMES[type(run.ending)] if run.job.id in written else LOST)

    def _record_apart(self, runs: Sequence[Run], error: Exception) -> None:
        """Finds the run whose end cannot be stored: its attempt has failed, the others' have not."""
        if len(runs) > 1:
            middle = len(runs) // 2
            self._record(runs[:middle])
            self._record(runs[middle:])
            return
        (run,) = runs
        if run.refused:
            self.tell(run, LOST)
            raise error
        run.refused = True
        run.take_progress()
        run.ending = self._endings.failure(run, error)
        self._record(runs)


def _outcome(run: Run) -> JobOutcome:
    if run.ending is None:
        raise AssertionError(f"job {run.job.id} has not ended")
    return JobOutcome(run.job, run.ending, run.take_progress())


def _take_back_progress(runs: Sequence[Run], outcomes: Sequence[JobOutcome]) -> None:
    told = {outcome.job.id: outcome.progress for outcome in outcomes}
    for run in runs:
        progress = told.get(run.job.id)
        if progress is not None:
            run.tell(progress)
