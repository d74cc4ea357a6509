"""How a handler is called: in the runner's thread, or on the event loop or in another process while the runner's thread waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from boxengine.engine.answers import asynchronous
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.jobs.async_handle import AsyncJob
from boxengine.engine.jobs.forking import ending_children
from boxengine.engine.jobs.handle import Handler, Job, JobHandle
from boxengine.engine.jobs.in_process import InProcess
from boxengine.engine.jobs.interrupting import Interrupt
from boxengine.engine.jobs.run import Run
from boxengine.errors import JobLost
from boxengine.ports import Tracer
from boxengine.ports.job_processes import HandlerProcesses
from boxengine.ports.jobs import JobUnit

Interruptible = Callable[[], AbstractContextManager[Interrupt]]


class Way(Protocol):
    """Calls one handler. Threads share it."""

    def job(self, run: Run, unit: JobUnit) -> JobHandle[Any]:
        """The argument of the handler."""

    def call(self, run: Run, job: Any) -> object:
        """Returns or raises what the handler does. Meanwhile ``run`` knows how to stop it."""


class InThread:
    """``def``."""

    def __init__(self, handler: Handler, interruptible: Interruptible) -> None:
        self._handler = handler
        self._interruptible = interruptible

    def job(self, run: Run, unit: JobUnit) -> Job[Any]:
        return Job(run, unit)

    def call(self, run: Run, job: Job[Any]) -> object:
        with self._interruptible() as interrupt:
            run.begin(interrupt)
            try:
                with ending_children():
                    return self._handler(job)
            finally:
                run.leave()


class OnLoop:
    """``async def``. The runner's thread writes for the coroutine and waits until it ends, cancelled or not."""

    def __init__(self, handler: Any, loop: EventLoop) -> None:
        self._handler = handler
        self._loop = loop

    def job(self, run: Run, unit: JobUnit) -> AsyncJob[Any]:
        return AsyncJob(run, unit, self._loop.visit())

    def call(self, run: Run, job: AsyncJob[Any]) -> object:
        visit = job.visit
        run.begin(lambda _error=JobLost: visit.cancel(), cancel=visit.cancel)
        visit.begin(self._handler, job, name=f"{job.box_name} {job.task} {job.id}")
        visit.wait()
        run.leave()
        return visit.result()


def way_of(
    handler: Handler,
    *,
    loop: EventLoop,
    interruptible: Interruptible,
    tracer: Tracer,
    processes: HandlerProcesses | None = None,
) -> Way:
    """The way to call this handler.

    Args:
        tracer: names the attempt's trace to a process.
        processes: in which the box's handlers run; None: in this one.
    """
    if processes is not None:
        return InProcess(processes, tracer)
    return OnLoop(handler, loop) if asynchronous(handler) else InThread(handler, interruptible)
