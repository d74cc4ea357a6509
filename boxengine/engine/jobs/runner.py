"""Runs one job after the other: calls the handler, then records how the attempt ended."""

from __future__ import annotations

import json
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from boxengine.domain.jobs import Canceled, Ending, Failed, JobBox, Requeued, Succeeded
from boxengine.engine.answers import discard, unfinished
from boxengine.engine.attempt import ends_the_worker, error_log
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.jobs.handle import Handler, JobHandle
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.interrupting import interruptible
from boxengine.engine.jobs.run import Run, Runs
from boxengine.engine.jobs.ways import Interruptible, way_of
from boxengine.errors import InvalidItem, JobLost, JobRetry, JobTimeout, StoreUnavailable
from boxengine.ports import Clock, ErrorTracker
from boxengine.ports.jobs import JobEnded, JobObserver, JobStore, JobUnit

AT_ONCE = timedelta(0)
WAIT = 1.0
"""Seconds for which a turn waits for a job."""
NAMES: Mapping[type, str] = {Succeeded: "succeeded", Requeued: "requeued", Failed: "failed", Canceled: "canceled"}
LOST = "lost"


class Runner:
    """Of one box. Its threads share it."""

    def __init__(
        self,
        box: JobBox,
        handlers: Mapping[str, Handler],
        *,
        store: JobStore,
        handover: Handover,
        runs: Runs,
        clock: Clock,
        observer: JobObserver,
        error_tracker: ErrorTracker,
        pause_after_outage: Callable[[BaseException], float],
        event_loop: EventLoop,
        interruptible: Interruptible = interruptible,
    ) -> None:
        """Args:
        handlers: by task.
        event_loop: on which those run that are ``async def``.
        pause_after_outage: told that the store did not answer; seconds until the next try.
        """
        self._box = box
        self._ways = {
            task: way_of(handler, loop=event_loop, interruptible=interruptible) for task, handler in handlers.items()
        }
        self._store = store
        self._handover = handover
        self._runs = runs
        self._clock = clock
        self._observer = observer
        self._track = error_tracker
        self._pause_after_outage = pause_after_outage

    def turn(self) -> timedelta:
        """Runs one job, if there is one."""
        run = self._handover.take(WAIT)
        if run is None:
            return AT_ONCE
        try:
            pause = self._run(run) if run.ending is None else self._record(run, self._store.unit(self._box, run.job))
        except BaseException:
            self._leave(run)
            raise
        if pause:
            # Some other thread may take it on; the keeper holds it meanwhile.
            self._handover.put_back(run)
        else:
            self._leave(run)
        return pause

    def _run(self, run: Run) -> timedelta:
        unit = self._store.unit(self._box, run.job)
        try:
            run.ending = self._attempt(run, unit)
            return self._record(run, unit)
        except JobLost:
            # Hit by the watchdog a moment after the handler had ended.
            self._tell(run, LOST)
            return AT_ONCE
        finally:
            unit.close()

    # ── the handler ──────────────────────────────────────────────────────────────────────────────────

    def _attempt(self, run: Run, unit: JobUnit) -> Ending | None:
        """How it ended; None: the job was lost."""
        way = self._ways.get(run.job.task)
        if way is None:
            known = ", ".join(sorted(self._ways)) or "none is configured"
            return self._failure(run, InvalidItem(f"box {self._box.name} has no task {run.job.task!r}; known: {known}"))
        job = way.job(run, unit)
        try:
            result = way.call(run, job)
        except BaseException as error:
            if ends_the_worker(error):
                raise
            return self._raised(run, job, error)
        if job.retry_asked is not None:
            # The handler has caught what should have ended it.
            return self._retry(job)
        if run.saw_cancel:
            return Canceled()
        return self._success(run, result)

    def _success(self, run: Run, result: object) -> Ending:
        if unfinished(result):
            discard(result)
            return self._failure(
                run, InvalidItem(f"the handler returned a {type(result).__name__}, whose work nobody does")
            )
        try:
            json.dumps(result, allow_nan=False)
        except (TypeError, ValueError) as error:
            return self._failure(run, InvalidItem(f"the handler's result: expected what JSON can hold: {error}"))
        return Succeeded(result=result)

    def _raised(self, run: Run, job: JobHandle[Any], error: BaseException) -> Ending | None:
        if isinstance(error, JobRetry):
            return self._retry(job)
        if run.is_lost():
            return None
        if job.retry_asked is not None and isinstance(error, BaseExceptionGroup):
            # A task group has wrapped it.
            return self._retry(job)
        if run.timed_out and isinstance(error, JobTimeout | CancelledError):
            limit = self._box.timeout or timedelta(0)
            error = JobTimeout(f"no end within {limit.total_seconds():g} s (timeout); the handler was stopped")
        return self._failure(run, error)

    def _retry(self, job: JobHandle[Any]) -> Requeued:
        return Requeued(pause=job.retry_asked or timedelta(0))

    def _failure(self, run: Run, error: BaseException) -> Ending:
        if run.saw_cancel:
            return Canceled()
        job = run.job
        text = error_log(error, where=job.task, now=self._clock.now()).replace("\0", "")
        if job.attempt < job.max_attempts:
            return Requeued(pause=self._box.pause_after(job.attempt), error=text)
        self._track(error, box=self._box.name, job=job.id, task=job.task)
        return Failed(error=text)

    # ── its end ──────────────────────────────────────────────────────────────────────────────────────

    def _record(self, run: Run, unit: JobUnit) -> timedelta:
        """Records the end; returns how long to wait before another try, nothing if there need not be one."""
        if run.ending is None or run.is_lost():
            self._tell(run, LOST)
            return AT_ONCE
        in_use = unit.in_use
        try:
            written = self._write(run, unit, run.ending)
        except StoreUnavailable as error:
            if in_use and isinstance(run.ending, Succeeded):
                # What the session wrote has gone with its connection, unless the commit was done after all: then the fence
                # keeps out what is tried now.
                run.ending = self._failure(run, error)
            return timedelta(seconds=self._pause_after_outage(error))
        self._tell(run, NAMES[type(run.ending)] if written else LOST)
        return AT_ONCE

    def _write(self, run: Run, unit: JobUnit, ending: Ending) -> bool:
        progress = run.take_progress()
        try:
            return unit.end(ending, progress=progress)
        except StoreUnavailable:
            if progress is not None:
                run.tell(progress)
            raise
        except JobLost:
            raise
        except Exception as error:
            # What the handler left in its session, or its result, cannot be stored: that is the attempt's failure.
            run.ending = self._failure(run, error)
            return unit.end(run.ending)

    def _tell(self, run: Run, end: str) -> None:
        self._observer.see(JobEnded(self._box, end=end, seconds=self._clock.monotonic() - run.began))

    def _leave(self, run: Run) -> None:
        self._runs.remove(run)
        self._handover.done()
