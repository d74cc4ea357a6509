"""Records how attempts ended, and all that have ended meanwhile together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from boxengine.domain.jobs import Canceled, Failed, JobBox, JobOutcome, Requeued, Succeeded
from boxengine.engine.jobs.endings import Endings
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.run import Run, Runs
from boxengine.engine.running.outages import Outages
from boxengine.errors import StoreConflict, StoreUnavailable
from boxengine.ports import Clock
from boxengine.ports.jobs import JobEnded, JobObserver, JobsLeft, JobStore

AT_ONCE = timedelta(0)
FOR_A_MOMENT = 0.25
"""Seconds until rows that were locked are tried for the second time. A heartbeat of this worker locks those of its jobs, too."""
TOLD = 5
"""The most jobs whose ids an error names."""
LOST = "lost"
NAMES: Mapping[type, str] = {Succeeded: "succeeded", Requeued: "requeued", Failed: "failed", Canceled: "canceled"}


class Recorder:
    """Records the ends of one box's jobs.

    While it writes, further jobs end, so the busier the box, the more of them share a transaction. A lone job's end is written
    at once. Until its end is written, a job stays this worker's, and its lease is extended.

    An end whose row somebody has locked is tried again, and keeps no other waiting. Its lease cannot be extended either: if the
    lock outlasts it, the job is lost, and runs again.
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
        outages: Outages,
    ) -> None:
        self._box = box
        self._store = store
        self._handover = handover
        self._runs = runs
        self._clock = clock
        self._observer = observer
        self._endings = endings
        self._outages = outages
        # Not the loop's own name: each turn of a loop that returns ends the outage of that name.
        self._recording = f"recording the ends of jobs of {box.name}"
        self._recording_locked = f"recording locked jobs of {box.name}"
        self._locked: list[Run] = []
        """Ended jobs whose rows somebody had locked."""
        self._again_at = 0.0
        """Monotonic time at which these are tried again."""

    def turn(self, wait: float | None = None) -> timedelta:
        """Records once what has ended; returns how long to wait before the next turn.

        Args:
            wait: seconds for which to wait for an end; None: as long as it takes.
        """
        try:
            self._take(wait)
        except StoreUnavailable as error:
            return self.pause_after(error)
        return AT_ONCE

    def pause_after(self, error: StoreUnavailable) -> timedelta:
        """Notes that an end could not be recorded; returns how long to wait before the next try."""
        return timedelta(seconds=self._outages.failed(self._recording, error))

    def leave(self) -> None:
        """The worker waits no longer for handlers that are at work: their jobs are left to their leases."""
        at_work = [run.job.id for run in self._runs.of(self._box) if run.is_at_work and not run.is_lost()]
        if at_work:
            self._observer.see(JobsLeft(self._box, jobs=at_work))

    def finish(self) -> None:
        """Records what is left when the worker stops. Here it waits for locked rows, and for a locked table.

        Raises:
            StoreUnavailable: those jobs run again when their lease is over.
        """
        while self._has_taken():
            pass
        while self._locked:
            run = self._locked.pop()
            if run.ending is not None and not run.is_lost():
                unit = self._store.unit(self._box, run.job)
                written = unit.end(run.ending, progress=run.take_progress())
                self.close(run, NAMES[type(run.ending)] if written else LOST)

    def close(self, run: Run, end: str) -> None:
        """The run is over; the observer is told how its attempt ended."""
        run.over = True
        self._runs.remove(run)
        seconds = self._clock.monotonic() - run.began
        error = run.ending.error if end != LOST and isinstance(run.ending, Requeued | Failed) else None
        self._observer.see(JobEnded(self._box, end=end, seconds=seconds, job=run.job, error=error))

    def _has_taken(self) -> bool:
        try:
            return bool(self._take(0.0))
        except StoreConflict:
            return True  # they are tried again, until their leases are over or whoever stops the worker gives up

    def _take(self, wait: float | None) -> int:
        if self._locked:
            again_in = max(0.0, self._again_at - self._clock.monotonic())
            wait = again_in if wait is None else min(wait, again_in)
        ended = self._handover.ended(wait)
        again = self._to_try_again()
        runs = [*again, *ended]
        try:
            if runs:
                tell = self._outages.idle if all(run.is_lost() for run in runs) else self._outages.worked
                self._record(runs)
                tell(self._recording)
        finally:
            # Whatever was raised: each run is over now, or must be tried again. With none, no job was let go, and the claimer is
            # not woken: it would look in vain.
            if runs:
                locked = set(map(id, self._locked))
                self._handover.recorded([run for run in runs if not run.over and id(run) not in locked], len(ended))
        self._tell_of_locks(again)
        return len(ended)

    def _to_try_again(self) -> list[Run]:
        if self._clock.monotonic() < self._again_at:
            return []
        locked, self._locked = self._locked, []
        return locked

    def _tell_of_locks(self, tried: Sequence[Run]) -> None:
        now = self._clock.monotonic()
        if not self._locked:
            if tried:
                self._outages.worked(self._recording_locked)
        elif now >= self._again_at:
            lasts = not set(map(id, tried)).isdisjoint(map(id, self._locked))
            self._again_at = now + (
                self._outages.failed(self._recording_locked, self._in_the_way()) if lasts else FOR_A_MOMENT
            )

    def _in_the_way(self) -> StoreConflict:
        ids = ", ".join(str(run.job.id) for run in self._locked[:TOLD])
        more = "" if len(self._locked) <= TOLD else f" and {len(self._locked) - TOLD} more"
        return StoreConflict(
            f"another transaction has locked rows, so the ends of jobs that have run are not recorded: {ids}{more}; "
            "boxengine doctor lists long-running transactions"
        )

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
                if run.job.id in written:
                    self.close(run, NAMES[type(run.ending)])
            self._put_off([run for run in runs if not run.over], outcomes)

    def _put_off(self, runs: Sequence[Run], outcomes: Sequence[JobOutcome]) -> None:
        """Keeps those whose rows somebody has locked; the others are lost."""
        asked = [run.job.held for run in runs if not run.is_lost()]
        _take_back_progress(runs, outcomes)
        held = self._store.still_held(self._box, asked) if asked else ()
        for run in runs:
            if run.job.id in held:
                self._locked.append(run)
            else:
                self.close(run, LOST)

    def _record_apart(self, runs: Sequence[Run], error: Exception) -> None:
        """Finds the run whose end cannot be stored: its attempt has failed, the others' have not."""
        if len(runs) > 1:
            middle = len(runs) // 2
            self._record(runs[:middle])
            self._record(runs[middle:])
            return
        (run,) = runs
        if run.refused:
            self.close(run, LOST)
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
