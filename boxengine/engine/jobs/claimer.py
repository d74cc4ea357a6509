"""Takes jobs for the threads that are idle, and some ahead where jobs are short."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from boxengine.domain.jobs import ClaimedJob, Due, JobBox
from boxengine.engine.jobs.aging import AgedShare
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.run import Run, Runs
from boxengine.engine.jobs.timing import JobTiming
from boxengine.ports import Clock
from boxengine.ports.contracts import ArgsCodec
from boxengine.ports.jobs import JobStore

AT_ONCE = timedelta(0)


class Claimer:
    """Claims the jobs of one box. A job that waits here uses up its lease, and no other worker can take it; so one that waits too
    long is given back."""

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
        self._aged = AgedShare()
        self._unwanted: list[Run] = []
        """To be given back."""
        self._look_at = float("-inf")
        """Monotonic time of the next look at jobs that wait for their time."""
        self._undisturbed = False
        """Whether the last rest ended because its time was over."""

    def turn(self) -> timedelta:
        """Claims once, then rests where nothing more is there.

        Raises:
            StoreUnavailable: jobs that were claimed all the same come back when their lease is over.
        """
        self._return(self._handover.waiting_since(self._clock.monotonic() - self._timing.unbegun))
        if self._undisturbed and not self._finds_any():
            self._rest()
            return AT_ONCE
        self._undisturbed = False
        room = self._handover.room(self._timing.poll)
        if not room:
            return AT_ONCE
        claimed = self._claim(room)
        if claimed == room and self._clock.monotonic() < self._look_at:
            return AT_ONCE
        due = self._promote()
        if due.promoted and claimed < room:
            claimed += self._claim(room - claimed)
        if claimed < room:
            self._rest()
        return AT_ONCE

    def stop(self) -> None:
        """Interrupts a turn that waits, and lets the handlers of all boxes see that the process is about to stop."""
        self._runs.stop()
        self._handover.stop()

    def give_back(self) -> None:
        """Gives back the jobs that were claimed and not begun: at the end, and while the box is paused."""
        self._return(self._handover.left())

    def _return(self, runs: Sequence[Run]) -> None:
        self._unwanted += runs
        left = [run for run in self._unwanted if not run.is_lost()]
        if left:
            # Without an answer it is unknown whether it was done: then none of them may begin here any more.
            self._store.give_back(self._box, [run.job.held for run in left])
        for run in self._unwanted:
            self._runs.remove(run)
        self._unwanted = []

    def _claim(self, count: int) -> int:
        sent, oldest = self._clock.monotonic(), self._aged.among(count)
        runs: list[Run] = []
        try:
            claimed = self._store.claim(self._box, count, worker=self._worker, oldest=oldest)
            self._aged.note(len(claimed), oldest)
            runs = [self._run(job, sent) for job in claimed]
            self._runs.add(runs)
        finally:
            # Also where nothing came of it: somebody may wait for these.
            self._handover.give(runs)
        return len(runs)

    def _run(self, job: ClaimedJob, sent: float) -> Run:
        codec = self._codecs.get(job.task)
        return Run(self._box, job, sent=sent, clock=self._clock, timing=self._timing, codec=codec)

    def _finds_any(self) -> bool:
        """Whether a claim is worthwhile though nobody has rung. A look costs half as much as a claim that finds nothing."""
        due = self._promote()
        return due.ready or due.promoted > 0

    def _rest(self) -> None:
        self._undisturbed = not self._handover.rest(max(0.0, self._look_at - self._clock.monotonic()))

    def _promote(self) -> Due:
        """Lets jobs go whose time has come. The next look is when the next one's has, within the usual time."""
        due = self._store.promote(self._box)
        until = self._timing.poll
        if due.next_due is not None and not due.promoted:
            until = min(until, max(0.0, due.next_due.total_seconds()))
        self._look_at = self._clock.monotonic() + (0.0 if due.promoted else until)
        return due
