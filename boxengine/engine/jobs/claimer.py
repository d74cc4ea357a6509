"""Takes jobs for the threads that are idle."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from boxengine.domain.jobs import ClaimedJob, JobBox
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.run import Run, Runs
from boxengine.engine.jobs.timing import JobTiming
from boxengine.ports import Clock
from boxengine.ports.contracts import ArgsCodec
from boxengine.ports.jobs import JobStore

AT_ONCE = timedelta(0)


class Claimer:
    """Of one box. Nothing is claimed that no thread is idle for: what waits here would only use its lease up."""

    def __init__(
        self,
        box: JobBox,
        *,
        store: JobStore,
        handover: Handover,
        runs: Runs,
        clock: Clock,
        worker: str,
        timing: JobTiming,
        codecs: Mapping[str, ArgsCodec] = MappingProxyType({}),
    ) -> None:
        """Args:
        codecs: of arguments, by task.
        """
        self._box = box
        self._store = store
        self._handover = handover
        self._runs = runs
        self._clock = clock
        self._worker = worker
        self._timing = timing
        self._codecs = codecs

    def turn(self) -> timedelta:
        """Claims once, then rests where nothing more is there.

        Raises:
            StoreUnavailable: jobs that were claimed all the same come back when their lease is over.
        """
        idle = self._handover.idle(self._timing.poll)
        if not idle:
            return AT_ONCE
        next_due = self._store.promote(self._box).next_due
        if self._claim(idle) < idle:
            self._handover.rest(self._until(next_due))
        return AT_ONCE

    def stop(self) -> None:
        """Interrupts a turn that waits."""
        self._runs.stop()
        self._handover.stop()

    def give_back(self) -> None:
        """What was claimed and not begun, at the end."""
        left = [run for run in self._handover.left() if run.ending is None and not run.is_lost()]
        if left:
            self._store.give_back(self._box, [run.job.held for run in left])

    def _claim(self, count: int) -> int:
        sent = self._clock.monotonic()
        claimed = self._store.claim(self._box, count, worker=self._worker)
        runs = [self._run(job, sent) for job in claimed]
        for run in runs:
            self._runs.add(run)
        self._handover.give(runs)
        return len(runs)

    def _run(self, job: ClaimedJob, sent: float) -> Run:
        codec = self._codecs.get(job.task)
        return Run(self._box, job, sent=sent, clock=self._clock, timing=self._timing, codec=codec)

    def _until(self, next_due: timedelta | None) -> float:
        """Until the next look. A job whose time had come was promoted, so another may be due at once."""
        if next_due is None:
            return self._timing.poll
        return min(self._timing.poll, max(0.0, next_due.total_seconds()))
