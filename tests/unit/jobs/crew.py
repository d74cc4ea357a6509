"""One worker's loops over a store in memory, taken turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from threading import Condition
from types import MappingProxyType
from typing import Any, cast

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs, Row
from boxengine.domain.jobs import JobBox
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.engine.jobs.claimer import Claimer
from boxengine.engine.jobs.endings import Endings
from boxengine.engine.jobs.handle import Handler
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.keeper import Keeper
from boxengine.engine.jobs.reaper import Reaper
from boxengine.engine.jobs.recorder import Recorder
from boxengine.engine.jobs.run import Runs
from boxengine.engine.jobs.runner import Runner
from boxengine.engine.jobs.timing import JobTiming
from boxengine.engine.jobs.watchdog import Watchdog
from boxengine.ports import Tracer
from boxengine.ports.contracts import ArgsCodec
from boxengine.ports.job_processes import HandlerProcesses
from boxengine.ports.jobs import JobEvent, NewJob

BOX = JobBox(name="report_job", table="report_jobs", concurrency=2, max_attempts=3)
TIMING = JobTiming(poll=0.0, idle=0.0)


class Crew:
    """``handler`` serves the task ``report``. Nothing waits, and time passes when it is told to."""

    def __init__(
        self,
        handler: Handler | BatchHandler,
        *,
        jobs: MemoryJobs | None = None,
        codecs: Mapping[str, ArgsCodec] = MappingProxyType({}),
        timeout: timedelta | None = None,
        batch_size: int = 1,
        box: JobBox = BOX,
        condition: Callable[[], Condition] | None = None,
        processes: HandlerProcesses | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        """Args:
        condition: makes what threads wait on; None: real ones.
        """
        self.box = box = replace(box, timeout=timeout, batch_size=batch_size)
        self.clock = ManualClock() if jobs is None else jobs._clock
        self.jobs = jobs or MemoryJobs(self.clock)
        self.events: list[JobEvent] = []
        self.told: list[tuple[Any, Mapping[str, Any]]] = []
        self.pauses: list[BaseException] = []
        self.working: list[str] = []
        self.idling: list[str] = []
        self.runs = Runs()
        self.handover = Handover(box.concurrency, each=batch_size, timing=TIMING, condition=condition)
        handlers: dict[str, Handler | BatchHandler] = {"report": handler}
        shared: dict[str, Any] = {"store": self.jobs, "runs": self.runs, "clock": self.clock}
        endings = Endings(box, clock=self.clock, error_tracker=self._track)
        outages = cast("Any", self)
        self.recorder = Recorder(
            box,
            **shared,
            handover=self.handover,
            observer=self,
            endings=endings,
            outages=outages,
        )
        self.claimer = Claimer(box, **shared, handover=self.handover, worker="w", timing=TIMING, codecs=codecs)
        self.loop = EventLoop()
        self.runner = Runner(
            box,
            handlers,
            store=self.jobs,
            clock=self.clock,
            handover=self.handover,
            recorder=self.recorder,
            endings=endings,
            event_loop=self.loop,
            tracer=tracer,
            processes=processes,
        )
        self.keeper = Keeper(box, **shared, handover=self.handover, outages=outages, timing=TIMING)
        self.watchdog = Watchdog(self.runs, timing=TIMING)
        self.reaper = Reaper(box, store=self.jobs, handover=self.handover, observer=self, timing=TIMING)

    def see(self, event: JobEvent) -> None:
        self.events.append(event)

    def _track(self, error: BaseException | str, /, **context: Any) -> None:
        self.told.append((error, context))

    def failed(self, _what: str, error: BaseException) -> float:
        """As an ``Outages``."""
        self.pauses.append(error)
        return 0.5

    def worked(self, what: str) -> None:
        self.working.append(what)

    def idle(self, what: str) -> None:
        self.idling.append(what)

    def create(self, task: str = "report", **attributes: Any) -> int:
        values = {"args": {}, "max_attempts": 3, "lease_ttl": timedelta(seconds=60), **attributes}
        return self.jobs.insert(self.box, [NewJob(task=task, **values)])[0]

    def work(self) -> timedelta:
        """Claims, runs one job, and records its end."""
        self.claimer.turn()
        return self.run()

    def run(self) -> timedelta:
        """Runs one claimed job, and records its end."""
        return self.runner.turn() or self.recorder.turn(0.0)

    def row(self, job_id: int = 1) -> Row:
        return self.jobs.tables[self.box.name][job_id]

    def ends(self) -> list[str]:
        return [event.end for event in self.events if hasattr(event, "end")]

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))  # type: ignore[attr-defined]
