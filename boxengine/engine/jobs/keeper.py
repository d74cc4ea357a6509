"""Extends the leases of running jobs, with one heartbeat for all jobs of a box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from boxengine.domain.jobs import Beat, JobBox
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.run import Run, Runs
from boxengine.engine.jobs.timing import JobTiming
from boxengine.engine.running.outages import Outages
from boxengine.errors import InvalidItem, StoreUnavailable
from boxengine.ports import Clock
from boxengine.ports.jobs import JobStore

AT_ONCE = timedelta(0)


class Keeper:
    """Keeps the leases that one process holds in one box."""

    def __init__(
        self,
        box: JobBox,
        *,
        store: JobStore,
        handover: Handover,
        runs: Runs,
        clock: Clock,
        outages: Outages,
        timing: JobTiming,
    ) -> None:
        self._box = box
        self._store = store
        self._handover = handover
        self._runs = runs
        self._clock = clock
        self._outages = outages
        self._what = f"heartbeats for jobs of {box.name}"
        self._timing = timing
        self._hurried = False

    def hurry(self) -> None:
        """Somebody has asked a job of the box to stop: the next turn sends a heartbeat, which learns of it. For any thread."""
        self._hurried = True

    def turn(self) -> timedelta:
        """Sends a heartbeat for all jobs as soon as one is due, so that they stay together. Without any, waits for one."""
        hurried, self._hurried = self._hurried, False
        now = self._clock.monotonic()
        runs = [run for run in self._runs.of(self._box) if not run.is_lost()]
        if not runs:
            self._outages.idle(self._what)  # of the jobs whose heartbeats failed none is left
            self._handover.await_jobs()
            return AT_ONCE
        if not any(hurried or run.is_due(now) for run in runs):
            return timedelta(seconds=self._timing.watch)
        return self._beat(runs, now)

    def _beat(self, runs: Sequence[Run], sent: float) -> timedelta:
        beats = [run.beat(sent) for run in runs]
        try:
            answer = self._answer(runs, beats)
        except StoreUnavailable as error:
            for run, beat in zip(runs, beats, strict=True):
                run.not_sent(beat)
            # Short leases would run out during a long pause.
            return timedelta(seconds=min(self._timing.watch, self._outages.failed(self._what, error)))
        self._outages.worked(self._what)
        for run, beat in zip(runs, beats, strict=True):
            if run.job.id not in answer:
                run.lose()
                continue
            canceled = answer[run.job.id]
            if canceled is None:
                run.not_sent(beat)
            else:
                run.prolonged(sent)
                run.canceled = run.canceled or canceled
        return timedelta(seconds=self._timing.watch)

    def _answer(self, runs: Sequence[Run], beats: Sequence[Beat]) -> Mapping[int, bool | None]:
        """What the store says. A progress that it refuses is left out, and must not cost the leases."""
        try:
            return self._store.beat(self._box, beats)
        except InvalidItem as error:
            if len(beats) == 1:
                runs[0].progress_refused = error
                return self._store.beat(self._box, [Beat(beats[0].held)])
            middle = len(beats) // 2
            first, second = self._answer(runs[:middle], beats[:middle]), self._answer(runs[middle:], beats[middle:])
            return {**first, **second}
