"""The loops that run long jobs, beside those of outboxes and inboxes."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from boxengine.adapters.sql.jobs.pauses import SqlJobPauses
from boxengine.adapters.sql.jobs.schedules import SqlSchedules
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.jobs.workers import SqlJobWorkers
from boxengine.app.jobs.contracts import codecs_of
from boxengine.app.jobs.processes import process_pool
from boxengine.app.running.loops import JobLoops, LoopMaker
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.jobs.at_work import JobsAtWork
from boxengine.engine.jobs.backlog import JobBacklogWatch
from boxengine.engine.jobs.bells import Bells
from boxengine.engine.jobs.claimer import Claimer
from boxengine.engine.jobs.create import JobChecks
from boxengine.engine.jobs.endings import Endings
from boxengine.engine.jobs.handover import Handover
from boxengine.engine.jobs.keeper import Keeper
from boxengine.engine.jobs.pausing import PauseGate
from boxengine.engine.jobs.pipeline import JobPipeline
from boxengine.engine.jobs.reaper import Reaper
from boxengine.engine.jobs.recorder import Recorder
from boxengine.engine.jobs.run import Runs
from boxengine.engine.jobs.runner import Runner
from boxengine.engine.jobs.scheduler import Scheduler
from boxengine.engine.jobs.sharing import Member, Sharing
from boxengine.engine.jobs.timing import JobTiming
from boxengine.engine.jobs.watchdog import Watchdog
from boxengine.engine.running.closing import Closing
from boxengine.engine.running.worker import Loop
from boxengine.ports import Clock, ErrorTracker, Tracer
from boxengine.ports.jobs import JobObserver

NO_LIMIT = timedelta(days=36_500)
"""A job may take as long as it needs; its lease shows whether its worker is alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGround:
    """What the loops of all job boxes of a worker share."""

    store: SqlJobs
    loops: LoopMaker
    clock: Clock
    observer: JobObserver
    tracer: Tracer
    error_tracker: ErrorTracker
    timing: JobTiming
    bells: Bells
    """They wake the claimers until these stop."""
    event_loop: EventLoop
    measuring: bool = False
    """Whether anybody looks at metrics."""
    auto_disabled: bool = False
    """Whether boxes are paused until somebody resumes them."""
    runs: Runs = field(default_factory=Runs)
    worker: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    """The name that claimed jobs carry."""


def job_loops(pipelines: Mapping[str, JobPipeline], ground: JobGround, *, shared_threads: int = 0) -> JobLoops:
    """The loops of these boxes.

    Args:
        shared_threads: those that belong to no box; they go where jobs wait.
    """
    loops, at_work = ground.loops, JobsAtWork(ground.runs, clock=ground.clock)
    boxes = [pipeline.box for pipeline in pipelines.values()]
    made = JobLoops(
        boxes=tuple(pipelines),
        threads=sum(box.concurrency for box in boxes) + shared_threads,
        at_work=at_work.engagements,
        fleets=[SqlJobWorkers(ground.store, boxes)],
    )
    members = [_add(made, pipeline, ground, at_work) for pipeline in pipelines.values()]
    if shared_threads:
        sharing = Sharing(members, store=ground.store, look_every=ground.timing.poll)
        made.sources.append(loops.make("job-sharing", sharing.look, interrupt=sharing.stop))
        made.processors.append(loops.make("job-shared", sharing.turn, count=shared_threads, limit=NO_LIMIT))
    if ground.measuring:
        watch = JobBacklogWatch(
            boxes, store=ground.store, outages=loops.outages, observer=ground.observer, clock=ground.clock
        )
        made.housekeeping.append(loops.make("job-backlog", watch.turn))
    made.housekeeping.append(loops.make("job-watchdog", Watchdog(ground.runs, timing=ground.timing).turn))
    made.close.append(Closing("the connections for jobs", ground.store.close))
    return made


def _add(made: JobLoops, pipeline: JobPipeline, ground: JobGround, at_work: JobsAtWork) -> Member:
    """Adds the loops of one box, and returns what shared threads need to know of it."""
    box, name, loops = pipeline.box, pipeline.box.name, ground.loops
    handover = Handover(box.concurrency, each=pipeline.each, timing=ground.timing)
    claimer = _claimer(pipeline, handover, ground)
    endings = Endings(box, clock=ground.clock, error_tracker=ground.error_tracker)
    recorder = Recorder(
        box,
        store=ground.store,
        handover=handover,
        runs=ground.runs,
        clock=ground.clock,
        observer=ground.observer,
        endings=endings,
        outages=loops.outages,
    )
    processes = process_pool(pipeline)
    runner = Runner(
        box,
        pipeline.handlers,
        store=ground.store,
        handover=handover,
        clock=ground.clock,
        recorder=recorder,
        endings=endings,
        event_loop=ground.event_loop,
        tracer=ground.tracer,
        processes=processes,
    )
    gate = PauseGate(
        box, claimer, pauses=SqlJobPauses(ground.store), clock=ground.clock, auto_disabled=ground.auto_disabled
    )

    def stop_claiming() -> None:
        ground.bells.remove(name, handover.ring)
        claimer.stop()

    def give_up_handlers() -> None:
        recorder.leave()
        if processes is not None:
            processes.close()

    def release() -> None:
        try:
            recorder.finish()
        finally:
            claimer.give_back()

    ground.bells.add(name, handover.ring)
    at_work.add(box, handover)
    made.sources.append(loops.make(f"job-claimer-{name}", gate.turn, interrupt=stop_claiming))
    made.processors.append(loops.make(f"job-runner-{name}", runner.turn, count=box.concurrency, limit=NO_LIMIT))
    made.housekeeping += [
        loops.make(f"job-recorder-{name}", recorder.turn, interrupt=handover.close),
        *_watching(pipeline, handover, ground),
    ]
    late = f"the database does not answer in time for the stop; left to their leases: jobs of {name}"
    made.release.append(Closing(f"handlers of {name} at work", give_up_handlers))
    made.release.append(Closing(f"jobs of {name} not recorded, or not begun", release, late=late))
    return Member(box, runner, gate.is_open)


def _claimer(pipeline: JobPipeline, handover: Handover, ground: JobGround) -> Claimer:
    return Claimer(
        pipeline.box,
        store=ground.store,
        handover=handover,
        runs=ground.runs,
        clock=ground.clock,
        worker=ground.worker,
        timing=ground.timing,
        codecs=codecs_of(pipeline),
    )


def _watching(pipeline: JobPipeline, handover: Handover, ground: JobGround) -> list[Loop]:
    """Heartbeats, the return of jobs whose worker died, and the jobs that ``cron`` creates."""
    box, name, loops = pipeline.box, pipeline.box.name, ground.loops
    keeper = Keeper(
        box,
        store=ground.store,
        handover=handover,
        runs=ground.runs,
        clock=ground.clock,
        outages=loops.outages,
        timing=ground.timing,
    )
    reaper = Reaper(box, store=ground.store, handover=handover, observer=ground.observer, timing=ground.timing)
    ground.bells.add_for_requests(name, keeper.hurry)
    forget = partial(ground.bells.remove, name, keeper.hurry)
    made = [
        loops.make(f"job-keeper-{name}", keeper.turn, interrupt=forget),
        loops.make(f"job-reaper-{name}", reaper.turn),
    ]
    if pipeline.schedules:
        scheduler = Scheduler(
            box,
            pipeline.schedules,
            store=SqlSchedules(ground.store),
            checks=JobChecks(box, tasks=pipeline.tasks, codecs=codecs_of(pipeline)),
            ring=handover.ring,
        )
        made.append(loops.make(f"job-scheduler-{name}", scheduler.turn))
    return made
