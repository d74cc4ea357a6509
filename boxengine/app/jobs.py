"""Long jobs: their connections, and the loops that run them beside those of outboxes and inboxes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from boxengine.adapters.sql.connecting.engine import connect as connect_database
from boxengine.adapters.sql.jobs.pauses import SqlJobPauses
from boxengine.adapters.sql.jobs.schedules import SqlSchedules
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.app.contracts import codecs_of
from boxengine.app.job_processes import process_pool
from boxengine.app.loops import LoopMaker
from boxengine.engine.awaiting.event_loop import EventLoop
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
from boxengine.errors import BoxError
from boxengine.ports import Clock, ErrorTracker
from boxengine.ports.jobs import JobObserver
from boxengine.settings import Resolved, Settings

SPARE_CONNECTIONS = 4
"""Per box: claimer, recorder, keeper, reaper."""
SILENT_AT_MOST = timedelta(hours=8)
"""How long a handler on MySQL may leave its session idle: the server's own default."""
NO_LIMIT = timedelta(days=36_500)
"""A job may take as long as it needs; its lease shows whether its worker is alive."""


def connect_jobs(settings: Settings, pipelines: Mapping[str, JobPipeline], *, threads: bool = True) -> SqlJobs:
    """The store of these boxes; no connection is made yet.

    Args:
        threads: whether jobs will run; if not, a few connections are enough.

    Raises:
        BoxError: ``database.url`` is missing or makes no sense.
    """
    if settings.database.url is None:
        raise BoxError("database.url is missing: set DATABASE_URL, or add the key to the configuration")
    running = sum(pipeline.box.concurrency for pipeline in pipelines.values()) if threads else 0
    engine = connect_database(
        settings.database.url,
        connections=running
        + (settings.jobs.shared_threads if threads else 0)
        + SPARE_CONNECTIONS * max(1, len(pipelines)),
        idle_timeout=SILENT_AT_MOST,
        prepared=settings.database.prepared_statements,
        writes=threads,
    )
    models = {name: pipeline.model for name, pipeline in pipelines.items() if pipeline.model is not None}
    return SqlJobs(engine, models)


def chosen_jobs(resolved: Resolved, names: Sequence[str]) -> dict[str, JobPipeline]:
    """The job boxes among the named boxes, or all if none is named."""
    return {name: pipeline for name, pipeline in resolved.jobs.items() if not names or name in names}


def timing_of(settings: Settings) -> JobTiming:
    """The timing from the settings under ``jobs``, for the engine."""
    configured = settings.jobs
    return JobTiming(
        heartbeat=configured.heartbeat.total_seconds(),
        reaper=configured.reaper_period.total_seconds(),
        poll=configured.poll_interval.total_seconds(),
    )


@dataclass(slots=True)
class JobLoops:
    """What a worker runs for its job boxes, grouped by when each part is stopped."""

    sources: list[Loop] = field(default_factory=list)
    processors: list[Loop] = field(default_factory=list)
    housekeeping: list[Loop] = field(default_factory=list)
    release: list[Closing] = field(default_factory=list)
    close: list[Closing] = field(default_factory=list)


def job_loops(
    pipelines: Mapping[str, JobPipeline],
    store: SqlJobs,
    *,
    loops: LoopMaker,
    clock: Clock,
    observer: JobObserver,
    error_tracker: ErrorTracker,
    timing: JobTiming,
    bells: Bells,
    event_loop: EventLoop,
    auto_disabled: bool = False,
    shared_threads: int = 0,
) -> JobLoops:
    """The loops of these boxes; empty without boxes. ``bells`` wake the claimers until these stop.

    Args:
        auto_disabled: boxes are paused until somebody resumes them.
        shared_threads: those that belong to no box.
    """
    made = JobLoops()
    if not pipelines:
        return made
    runs = Runs()
    members: list[Member] = []
    worker = f"{socket.gethostname()}:{os.getpid()}"
    for name, pipeline in pipelines.items():
        handover = Handover(pipeline.box.concurrency, each=pipeline.each, timing=timing)
        codecs = codecs_of(pipeline)
        bells.add(name, handover.ring)
        hush = partial(bells.remove, name, handover.ring)
        claimer = Claimer(
            pipeline.box,
            store=store,
            handover=handover,
            runs=runs,
            clock=clock,
            worker=worker,
            timing=timing,
            codecs=codecs,
        )
        endings = Endings(pipeline.box, clock=clock, error_tracker=error_tracker)
        recorder = Recorder(
            pipeline.box,
            store=store,
            handover=handover,
            runs=runs,
            clock=clock,
            observer=observer,
            endings=endings,
            pause_after_outage=partial(loops.outages.failed, f"job-recorder-{name}"),
            worked=partial(loops.outages.worked, f"job-recorder-{name}"),
        )
        processes = process_pool(pipeline)
        if processes is not None:
            made.release.append(Closing(f"the processes of {name}", processes.close))
        runner = Runner(
            pipeline.box,
            pipeline.handlers,
            store=store,
            handover=handover,
            clock=clock,
            recorder=recorder,
            endings=endings,
            event_loop=event_loop,
            processes=processes,
            pause_after_outage=partial(loops.outages.failed, f"job-runner-{name}"),
        )
        keeper = Keeper(
            pipeline.box,
            store=store,
            runs=runs,
            clock=clock,
            pause_after_outage=partial(loops.outages.failed, f"job-keeper-{name}"),
            worked=partial(loops.outages.worked, f"job-keeper-{name}"),
            timing=timing,
        )
        reaper = Reaper(pipeline.box, store=store, handover=handover, observer=observer, timing=timing)
        if pipeline.schedules:
            scheduler = Scheduler(
                pipeline.box,
                pipeline.schedules,
                store=SqlSchedules(store),
                checks=JobChecks(pipeline.box, tasks=pipeline.tasks, codecs=codecs),
                ring=handover.ring,
            )
            made.housekeeping.append(loops.make(f"job-scheduler-{name}", scheduler.turn))
        gate = PauseGate(pipeline.box, claimer, pauses=SqlJobPauses(store), clock=clock, auto_disabled=auto_disabled)
        members.append(Member(pipeline.box, runner, gate.is_open))
        made.sources.append(loops.make(f"job-claimer-{name}", gate.turn, interrupt=partial(_stop, claimer, hush)))
        made.processors.append(
            loops.make(f"job-runner-{name}", runner.turn, count=pipeline.box.concurrency, limit=NO_LIMIT)
        )
        made.housekeeping += [
            loops.make(f"job-recorder-{name}", recorder.turn, interrupt=handover.close),
            loops.make(f"job-keeper-{name}", keeper.turn),
            loops.make(f"job-reaper-{name}", reaper.turn),
        ]
        late = f"the database does not answer in time for the stop; left to their leases: jobs of {name}"
        made.release.append(
            Closing(f"jobs of {name} not recorded, or not begun", partial(_release, recorder, claimer), late=late)
        )
    if shared_threads:
        sharing = Sharing(members, store=store, look_every=timing.poll)
        made.sources.append(loops.make("job-sharing", sharing.look, interrupt=sharing.stop))
        made.processors.append(loops.make("job-shared", sharing.turn, count=shared_threads, limit=NO_LIMIT))
    made.housekeeping.append(loops.make("job-watchdog", Watchdog(runs, timing=timing).turn))
    made.close.append(Closing("the connections for jobs", store.close))
    return made


def _release(recorder: Recorder, claimer: Claimer) -> None:
    recorder.finish()
    claimer.give_back()


def _stop(claimer: Claimer, hush: Callable[[], None]) -> None:
    hush()
    claimer.stop()
