"""The whole worker: its loops, and the order in which they stop."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from boxengine.adapters.telemetry.liveness_log import log_liveness, log_silence
from boxengine.app.assembly.choosing import AS_CONFIGURED, Choices, chosen_jobs, is_coordinated
from boxengine.app.assembly.delivering import Delivering
from boxengine.app.assembly.ground import Ground
from boxengine.app.assembly.housekeeping import Housekeeping, job_heartbeats, left_in_redis, withdrawals
from boxengine.app.assembly.polling import Polling
from boxengine.app.running.loops import JobLoops
from boxengine.app.servers.connected import Servers
from boxengine.engine.awaiting.watch import LoopWatch
from boxengine.engine.jobs.bells import Bells
from boxengine.engine.jobs.listener import JobListener
from boxengine.engine.running.closing import Closing
from boxengine.engine.running.health import Health
from boxengine.engine.running.history import HistoryRecorder
from boxengine.engine.running.worker import Loop, Worker
from boxengine.ports import Observer, Service, Tracer
from boxengine.settings import Resolved

logger = logging.getLogger("boxengine.worker")


def health(servers: Servers, *, coordinated: bool = True, **options: Any) -> Health:
    """The health state that the probes report.

    Args:
        coordinated: whether Redis is needed; long jobs work without it.
    """
    checks = {"database": servers.store.ping} | ({"redis": servers.queue.ping} if coordinated else {})
    return Health(clock=servers.clock, checks=checks, turned=log_liveness, silent=log_silence, **options)


def assemble(
    resolved: Resolved,
    servers: Servers,
    *,
    choices: Choices = AS_CONFIGURED,
    observer: Observer,
    tracer: Tracer,
    health: Health,
    services: Sequence[Service] = (),
    name: str = "0",
    bells: Bells | None = None,
) -> Worker:
    """A worker over these servers, not started yet.

    Args:
        name: identifies this process among all workers and stays the same after a restart; part of Kafka's ``transactional.id``.
        bells: rung when this process creates jobs; None: the worker is not woken by them.

    Raises:
        UnknownBox: a chosen box does not exist.
        BoxError: a transport cannot be made.
    """
    ground = Ground(
        resolved, servers, choices, observer=observer, tracer=tracer, health=health, name=name, bells=bells or Bells()
    )
    make = _worker if is_coordinated(resolved, choices.boxes) else _worker_of_jobs
    return make(ground, services)


def _worker(ground: Ground, services: Sequence[Service]) -> Worker:
    jobs = _jobs(ground)
    recorder = HistoryRecorder(ground.servers.history, ground.servers.attempts, clock=ground.clock)
    delivering = Delivering(ground, recorder)
    polling = Polling(ground, delivering.processor)
    housekeeping = Housekeeping(ground, delivering, recorder, jobs)
    return Worker(
        sources=[*polling.loops(), *jobs.sources],
        processors=[delivering.loop(), *jobs.processors],
        housekeeping=[
            ground.loops.make("lease-keeper", delivering.keeper.turn),
            _loop_watch(ground),
            *housekeeping.loops(),
            *jobs.housekeeping,
        ],
        services=services,
        # Once the leases are released, the next worker can poll at once.
        release=[
            left_in_redis("the poller's leases", polling.poller.release),
            *housekeeping.release(),
            *jobs.release,
        ],
        close=[jobs.close, delivering.closings(), [_loop_closing(ground)], *ground.servers.closings()],
        error_tracker=ground.track,
        health=ground.health,
        clock=ground.clock,
    )


def _worker_of_jobs(ground: Ground, services: Sequence[Service]) -> Worker:
    """A worker for long jobs only, which need no Redis."""
    jobs = _jobs(ground)
    heartbeats = job_heartbeats(ground, jobs, at_work=jobs.at_work)
    sources = list(jobs.sources)
    if ground.servers.wakeups is not None and ground.settings.job_wakeup_in_force != "none":
        wakeups = ground.servers.wakeups
        listener = JobListener(wakeups, ground.bells.ring)
        sources.append(ground.loops.make("listener", listener.turn, interrupt=wakeups.interrupt))
    return Worker(
        sources=sources,
        processors=jobs.processors,
        housekeeping=[
            _loop_watch(ground),
            *(ground.loops.make("job-heartbeat", each.turn) for each in heartbeats),
            *jobs.housekeeping,
        ],
        services=services,
        release=[*withdrawals(heartbeats), *jobs.release],
        close=[[_loop_closing(ground)], jobs.close, *ground.servers.closings()],
        error_tracker=ground.track,
        health=ground.health,
        clock=ground.clock,
    )


def _jobs(ground: Ground) -> JobLoops:
    pipelines = chosen_jobs(ground.resolved, ground.choices.boxes)
    if not pipelines:
        return JobLoops()
    # Here, and not above: a fifth of all modules, which a worker without long jobs need not load.
    from boxengine.app.jobs.connecting import connect_jobs, timing_of  # noqa: PLC0415
    from boxengine.app.jobs.loops import JobGround, job_loops  # noqa: PLC0415

    settings = ground.settings
    common = JobGround(
        store=connect_jobs(settings, pipelines),
        loops=ground.loops,
        clock=ground.clock,
        observer=ground.observer,
        tracer=ground.tracer,
        error_tracker=ground.track,
        timing=timing_of(settings),
        bells=ground.bells,
        event_loop=ground.event_loop,
        measuring=settings.metrics.enabled,
        auto_disabled=settings.polling_auto_disabled,
    )
    return job_loops(pipelines, common, shared_threads=settings.jobs.shared_threads)


def _loop_watch(ground: Ground) -> Loop:
    return ground.loops.make("event-loop", LoopWatch(ground.event_loop, tell=logger.warning).turn)


def _loop_closing(ground: Ground) -> Closing:
    return Closing("the event loop", ground.event_loop.close)
