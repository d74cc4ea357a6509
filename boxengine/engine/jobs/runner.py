"""Runs one job after the other: calls the handler, and hands on how the attempt ended."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from boxengine.domain.jobs import Canceled, Ending, Executor, Failed, JobBox, Requeued, Succeeded
from boxengine.engine.attempt import ends_the_worker
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.jobs.batch import BatchRunner
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.engine.jobs.endings import Endings
from boxengine.engine.jobs.handle import Handler, JobHandle
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.interrupting import interruptible
from boxengine.engine.jobs.recorder import LOST, NAMES, Recorder
from boxengine.engine.jobs.run import Run
from boxengine.engine.jobs.ways import Interruptible, way_of
from boxengine.engine.observation import NullTracer
from boxengine.errors import InvalidItem, JobLost, JobRetry, JobTimeout, StoreUnavailable
from boxengine.ports import AttemptsFailed, Clock, Tracer
from boxengine.ports.job_processes import HandlerProcesses
from boxengine.ports.jobs import JobStore, JobUnit

AT_ONCE = timedelta(0)
WAIT = 1.0
"""Seconds for which a thread that belongs to no box waits for a job."""
UNTIL_ASKED = timedelta(seconds=WAIT)
"""The pause of a thread that gets no more jobs and has not been asked to stop yet. Being asked ends it. Turns without a pause
would take a whole processor, for as long as the database keeps the claimer waiting."""


class Runner:
    """Runs the jobs of one box. The box's threads share it."""

    def __init__(
        self,
        box: JobBox,
        handlers: Mapping[str, Handler | BatchHandler],
        *,
        store: JobStore,
        handover: Handover,
        clock: Clock,
        recorder: Recorder,
        endings: Endings,
        event_loop: EventLoop,
        tracer: Tracer | None = None,
        processes: HandlerProcesses | None = None,
        interruptible: Interruptible = interruptible,
    ) -> None:
        """Args:
        handlers: by task.
        event_loop: runs handlers that are ``async def``.
        tracer: follows each attempt; None: nobody does.
        processes: in which the handlers run; None: in this one.
        """
        self._box = box
        self._tracer = NullTracer() if tracer is None else tracer
        self._ways = {
            task: way_of(
                handler, loop=event_loop, interruptible=interruptible, processes=processes, tracer=self._tracer
            )
            for task, handler in handlers.items()
            if not isinstance(handler, BatchHandler)
        }
        self._batches = {
            task: BatchRunner(handler, endings=endings, interruptible=interruptible)
            for task, handler in handlers.items()
            if isinstance(handler, BatchHandler)
        }
        self._store = store
        self._handover = handover
        self._clock = clock
        self._recorder = recorder
        self._endings = endings

    def turn(self) -> timedelta:
        """Runs one job, or one batch, if there is any; returns a pause if the store did not answer."""
        run = self._handover.take()
        if run is not None:
            return self._work(run)
        return UNTIL_ASKED if self._handover.stopping else AT_ONCE

    def visit(self) -> timedelta | None:
        """Runs one job, or one batch, in a thread that belongs to no box. None: there was nothing to do."""
        run = self._handover.visit(WAIT)
        return None if run is None else self._work(run, visitor=True)

    def _work(self, run: Run, *, visitor: bool = False) -> timedelta:
        batch = self._batches.get(run.job.task)
        runs = [run] if batch is None else [run, *self._handover.take_alike(run, self._box.batch_size - 1)]
        began = self._clock.monotonic()
        for each in runs:
            each.began = began
        try:
            ready = [each for each in runs if each.may_begin()]
            return self._traced(ready, batch) if ready else AT_ONCE
        finally:
            self._leave(runs, self._clock.monotonic() - began, visitor=visitor)

    def _traced(self, runs: Sequence[Run], batch: BatchRunner | None) -> timedelta:
        pause = AT_ONCE
        with suppress(AttemptsFailed), self._tracer.running(self._box, [run.job for run in runs]):
            if batch is None:
                pause = self._run(runs[0])
            else:
                batch.attempt(runs)
            if failed := _reasons(runs):
                raise AttemptsFailed(failed)
        return pause

    def _run(self, run: Run) -> timedelta:
        unit = self._store.unit(self._box, run.job)
        try:
            run.ending = self._attempt(run, unit)
            return self._commit(run, unit)
        except JobLost:
            # Hit by the watchdog a moment after the handler had ended.
            run.ending = None
            return AT_ONCE
        finally:
            unit.close()

    def _leave(self, runs: Sequence[Run], seconds: float, *, visitor: bool) -> None:
        lost = [run for run in runs if run.ending is None and not run.over]
        for run in lost:
            self._recorder.close(run, LOST)
        left = [run for run in runs if not run.over]
        self._handover.end(left, None if lost else seconds / len(runs), visitor=visitor)

    # ── the handler ──────────────────────────────────────────────────────────────────────────────────

    def _attempt(self, run: Run, unit: JobUnit) -> Ending | None:
        """Runs the handler and returns how the attempt ended; None: the job was lost."""
        way = self._ways.get(run.job.task)
        if way is None:
            known = ", ".join(sorted({*self._ways, *self._batches})) or "none is configured"
            return self._endings.failure(
                run, InvalidItem(f"box {self._box.name} has no task {run.job.task!r}; known: {known}")
            )
        job = way.job(run, unit)
        try:
            result = way.call(run, job)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            return self._raised(run, job, error)
        if job.retry_asked is not None:
            # The handler caught the error that should have ended it.
            return self._retry(run, job)
        if run.saw_cancel:
            return Canceled()
        return self._endings.answered(run, result, awaited=self._box.executor is Executor.THREAD)

    def _raised(self, run: Run, job: JobHandle[Any], error: BaseException) -> Ending | None:
        if isinstance(error, JobRetry):
            return self._retry(run, job)
        if run.is_lost():
            return None
        if job.retry_asked is not None and isinstance(error, BaseExceptionGroup):
            # A task group has wrapped it.
            return self._retry(run, job)
        if run.timed_out and isinstance(error, JobTimeout | CancelledError):
            error = self._endings.overdue()
        return self._endings.failure(run, error)

    def _retry(self, run: Run, job: JobHandle[Any]) -> Requeued:
        pause = self._box.pause_after(run.job.attempt) if job.retry_asked is None else job.retry_asked
        return Requeued(pause=pause, counts=not run.stopping)

    # ── its end ──────────────────────────────────────────────────────────────────────────────────────

    def _commit(self, run: Run, unit: JobUnit) -> timedelta:
        """Success with what the session has written: both, or neither. All other ends are the recorder's."""
        ending = run.ending
        if not unit.in_use or not isinstance(ending, Succeeded) or run.is_lost():
            return AT_ONCE
        progress = run.take_progress()
        try:
            written = unit.end(ending, progress=progress)
        except StoreUnavailable as error:
            if progress is not None:
                run.tell(progress)
            # What the session wrote has gone with its connection, unless the commit was done after all: then the fence keeps
            # out what is tried now.
            run.ending = self._endings.failure(run, error)
            return self._recorder.pause_after(error)
        except JobLost:
            raise
        except Exception as error:
            # What the handler left in its session, or its result, cannot be stored: that is the attempt's failure.
            run.ending = self._endings.failure(run, error)
        else:
            self._recorder.close(run, NAMES[Succeeded] if written else LOST)
        return AT_ONCE


def _reasons(runs: Sequence[Run]) -> dict[int, str]:
    """Why attempts have failed, by job."""
    found: dict[int, str] = {}
    for run in runs:
        if run.over:
            continue
        if run.is_lost():
            found[run.job.id] = "the job was lost: another worker may have it"
        elif isinstance(run.ending, Requeued | Failed) and run.ending.error:
            # After the time, the first line says where and why.
            found[run.job.id] = run.ending.error.partition("\n")[0].partition(" ")[2]
    return found
