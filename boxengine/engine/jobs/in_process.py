"""Calls a handler in another process, and does for it what it asks of its job."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, assert_never

from boxengine.domain.outcome import Failure
from boxengine.engine.jobs.handle import Job
from boxengine.engine.jobs.interrupting import Interrupt
from boxengine.engine.jobs.run import Run
from boxengine.errors import BoxError, JobLost, JobProcessDied, JobRaised, JobRetry, JobTimeout
from boxengine.ports import Tracer
from boxengine.ports.job_processes import (
    Answer,
    Asked,
    Begun,
    Call,
    HandlerProcess,
    HandlerProcesses,
    Order,
    ProcessGone,
    Prolonged,
    Raised,
    Refused,
    Returned,
)
from boxengine.ports.jobs import JobUnit

TICK = 0.25
"""Seconds between two looks whether the lease was extended."""
TRIES = 2
"""A process may have died while it was idle. That counts against the next job only if a new process dies as well."""


class InProcess:
    """``executor: process``. The runner's thread holds the job, writes for the handler, and waits for the process."""

    def __init__(self, processes: HandlerProcesses, tracer: Tracer) -> None:
        self._processes = processes
        self._tracer = tracer

    def job(self, run: Run, unit: JobUnit) -> Job[Any]:
        return Job(run, unit)

    def call(self, run: Run, job: Job[Any]) -> object:
        gone = ""
        for _ in range(TRIES):
            talk = _Talk(run, job, self._tracer.inject({}))
            try:
                with self._processes.borrow() as process:
                    return talk.hold(process)
            except ProcessGone as error:
                gone = str(error)
            if run.timed_out:
                raise JobTimeout
            if run.is_lost() or self._processes.closed:
                # Not recorded: others must wait until the lease is over, because the handler may be at work until then.
                run.lose()
                raise JobLost
            if talk.begun:
                raise JobProcessDied(f"the handler's process {gone} before the handler had ended")
        raise JobProcessDied(f"the handler's process {gone} before it could call the handler")


class _Talk:
    """The exchange with one process about one job."""

    def __init__(self, run: Run, job: Job[Any], trace_context: Mapping[str, str]) -> None:
        """Args:
        trace_context: headers that name the trace of the attempt.
        """
        self._run = run
        self._job = job
        self._trace_context = trace_context
        self.begun = False

    def hold(self, process: HandlerProcess) -> object:
        switch = _Switch(process.kill)
        self._run.begin(switch.hit, limited=False)
        try:
            end = self._until_its_end(process, switch.hit)
        except BaseException:
            # The process is in the middle of a job, so it cannot take the next.
            process.kill()
            raise
        finally:
            self._run.leave()
            switch.leave()
        return _result(end)

    def _until_its_end(self, process: HandlerProcess, stop: Interrupt) -> Returned | Refused | Raised:
        told = self._run.until
        process.send(Order(self._run.job, told, self._trace_context))
        while True:
            message = process.receive(TICK)
            if told != self._run.until:
                told = self._run.until
                process.send(Prolonged(self._run.job.held, told))
            match message:
                case None:
                    pass
                case Begun():
                    self.begun = True
                    self._run.begin(stop)
                case Call():
                    process.send(self._answer(message))
                case Returned() | Refused() | Raised():
                    return message
                case _:
                    assert_never(message)

    def _answer(self, call: Call) -> Answer:
        try:
            return Answer(self._asked(call.what, json.loads(call.value)), number=call.number)
        except Exception as error:  # raised in the handler, which may catch it
            name = type(error).__name__ if isinstance(error, BoxError) else BoxError.__name__
            return Answer(error=name, text=str(error), number=call.number)

    def _asked(self, what: Asked, value: Any) -> bool | None:
        match what:
            case "cancelled":
                return self._job.cancelled
            case "stopping":
                return self._job.stopping
            case "progress":
                self._job.progress(**value)
            case "checkpoint":
                self._job.checkpoint(value)
            case "retry":
                self._job.retry(in_=value)
            case "ensure_held":
                self._job.ensure_held()
            case _:
                assert_never(what)
        return None


def _result(end: Returned | Refused | Raised) -> object:
    if isinstance(end, Returned):
        return json.loads(end.result)
    if isinstance(end, Refused):
        return Failure(end.reason)
    for known in (JobLost, JobRetry):
        if end.kind == known.__name__:
            raise known(end.reason)
    raise JobRaised(end.reason, end.frames)


class _Switch:
    """Kills a process while it works for one job, but not once it works for the next."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill: Callable[[], None] | None = kill
        self._lock = threading.Lock()

    def hit(self, _error: type[BaseException] = JobLost) -> None:
        with self._lock:
            if self._kill is not None:
                self._kill()

    def leave(self) -> None:
        with self._lock:
            self._kill = None
