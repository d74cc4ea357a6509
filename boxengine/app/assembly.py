"""Assembles a worker from its loops."""

from __future__ import annotations

import inspect
import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from boxengine.adapters.sql.async_session import lend
from boxengine.adapters.telemetry.combined import CombinedObserver
from boxengine.adapters.telemetry.logs import report
from boxengine.app.jobs import JobLoops, chosen_jobs, connect_jobs, job_loops, timing_of
from boxengine.app.loops import HOUSEKEEPING_LIMIT, LoopMaker
from boxengine.app.servers import Servers
from boxengine.domain.box import Box, Storage
from boxengine.engine.awaiting.event_loop import EventLoop
from boxengine.engine.awaiting.watch import LoopWatch
from boxengine.engine.awaiting.wrapping import Awaiting
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.delivery import Delivery, Limits
from boxengine.engine.delivering.gone import GoneRows
from boxengine.engine.delivering.keeper import LeaseKeeper
from boxengine.engine.delivering.order import OrderWatch
from boxengine.engine.delivering.pipeline import Pipeline, TransportSpec
from boxengine.engine.delivering.processor import ProcessLimits, Processor
from boxengine.engine.jobs.bells import Bells
from boxengine.engine.jobs.listener import JobListener
from boxengine.engine.polling.bounding import BoundsWatch
from boxengine.engine.polling.checks import Checks, never_quiet
from boxengine.engine.polling.listener import Listener
from boxengine.engine.polling.looks import PollLimits, QueueJobs
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.poller import Poller
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.survey import MANY, Survey
from boxengine.engine.polling.tactics import TACTICS
from boxengine.engine.polling.throttlers import Pace
from boxengine.engine.retention import Retention
from boxengine.engine.running.backlog import Backlog
from boxengine.engine.running.closing import Closing
from boxengine.engine.running.health import Health
from boxengine.engine.running.heartbeat import Heartbeat
from boxengine.engine.running.lease_length import LeaseLength
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.recorder import Recorder
from boxengine.engine.running.table_watch import TableWatch
from boxengine.engine.running.worker import Loop, Worker
from boxengine.engine.timing import TIMING
from boxengine.engine.tracking import GuardedTracker
from boxengine.errors import BoxError, UnknownBox
from boxengine.ports import ErrorTracker, Observer, Service, Tracer, WorkerInfo, events
from boxengine.settings import Resolved, Settings
from boxengine.version import __version__

if TYPE_CHECKING:
    from boxengine.adapters.kafka.pool import ProducerPool

logger = logging.getLogger("boxengine.worker")
ROUND_TRIPS = 4
"""To Redis, between the start of a lease and the first item: the take, the boxes' pauses, remembered failures, the note of the
item in hand. Every other thread's round trip may come before the renewal of the lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the command line may override; None: as configured."""

    boxes: Sequence[str] = ()
    """Empty: all boxes."""
    processor_threads: int | None = None
    partitions: int | None = None
    poller_threads: int | None = None
    tactic: str | None = None


def choose(resolved: Resolved, names: Sequence[str]) -> dict[str, Pipeline]:
    """The pipelines of the named outboxes and inboxes, or of all if none is named. A log's name stands for its subscriptions.

    Raises:
        UnknownBox: a name is unknown; the error lists the known ones.
    """
    for name in names:
        if name not in resolved.jobs and not resolved.readers(name):
            raise UnknownBox(name, [*resolved.pipelines, *resolved.jobs])
    wanted = [reader for name in names for reader in resolved.readers(name)]
    return {name: pipeline for name, pipeline in resolved.pipelines.items() if not names or name in wanted}


def is_coordinated(resolved: Resolved, names: Sequence[str]) -> bool:
    """Whether the worker needs Redis: it does unless it runs only long jobs."""
    return bool(choose(resolved, names)) or not chosen_jobs(resolved, names)


def health(servers: Servers, *, coordinated: bool = True, **options: Any) -> Health:
    """The health state that the probes report.

    Args:
        coordinated: whether Redis is needed; long jobs work without it.
    """
    checks = {"database": servers.store.ping} | ({"redis": servers.queue.ping} if coordinated else {})
    return Health(clock=servers.clock, checks=checks, **options)


def assemble(
    resolved: Resolved,
    servers: Servers,
    *,
    choices: Choices = Choices(),
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
    assembly = _Assembly(resolved, servers, choices, observer, tracer, health, name, bells or Bells())
    return assembly.worker(services) if assembly.coordinated else assembly.worker_of_jobs(services)


def _left_in_redis(what: str, release: Callable[[], object]) -> Closing:
    return Closing(what, release, late=f"Redis does not answer in time for the stop; left to run out by itself: {what}")


class _Assembly:
    def __init__(
        self,
        resolved: Resolved,
        servers: Servers,
        choices: Choices,
        observer: Observer,
        tracer: Tracer,
        health: Health,
        name: str,
        bells: Bells,
    ) -> None:
        self._name = name
        self._bells = bells
        self._settings: Settings = resolved.settings
        self._resolved = resolved
        self._servers = servers
        self._choices = choices
        self._observer = servers.strangers.observer = observer
        self._tracer = tracer
        self._health = health
        self._clock = servers.clock
        tracker = resolved.error_tracker
        self._track: ErrorTracker = report if tracker is None else GuardedTracker(tracker, fallback=report)
        self._recorder = Recorder(servers.history, servers.attempts, clock=self._clock)
        self._token = secrets.token_hex(8)
        self._pipelines = choose(resolved, choices.boxes)
        self._boxes: list[Box] = [pipeline.box for pipeline in self._pipelines.values()]
        self._outages = Outages(observer=observer, error_tracker=self._track, clock=self._clock, missing=health.missing)
        self._loops = LoopMaker(health=health, clock=self._clock, outages=self._outages, seed=self._token)
        self.coordinated = is_coordinated(resolved, choices.boxes)
        partitions = choices.partitions or self._settings.poller.concurrency
        self._schedule = Schedule(self._boxes, partitions=partitions, clock=self._clock)
        self._threads = choices.processor_threads or self._settings.processor.threads_count
        self._lease = LeaseLength(
            timedelta(seconds=TIMING.lease), round_trips=ROUND_TRIPS + self._threads, observer=observer, timing=TIMING
        )
        self._pauses = PauseWatch(
            servers.pauses,
            self._boxes,
            clock=self._clock,
            auto_disabled=self._settings.polling_auto_disabled,
            resumed=self._schedule.wake,
            measured=self._lease.measured,
            timing=TIMING,
        )
        self._survey = self._make_survey()
        self._event_loop = EventLoop()
        self._awaiting = Awaiting(
            self._event_loop,
            lend=lend,
            clock=self._clock,
            cutoff=self._settings.processor.cutoff_timeout,
            paused=self._pauses.paused,
            concurrency={name: box.async_concurrency for name, box in self._settings.boxes.items()},
        )
        self._middlewares = self._awaiting.middlewares(resolved.middlewares)

    def worker_of_jobs(self, services: Sequence[Service]) -> Worker:
        """A worker for long jobs only."""
        jobs = self._jobs()
        sources = list(jobs.sources)
        if self._servers.wakeups is not None and self._settings.job_wakeup_in_force != "none":
            sources.append(self._loop("listener", JobListener(self._servers.wakeups, self._bells.ring).turn))
        return Worker(
            sources=sources,
            processors=jobs.processors,
            housekeeping=[self._loop_watch(), *jobs.housekeeping],
            services=services,
            release=jobs.release,
            close=[[self._loop_closing()], jobs.close, *self._servers.closings()],
            error_tracker=self._track,
            health=self._health,
            clock=self._clock,
        )

    def _jobs(self) -> JobLoops:
        pipelines = chosen_jobs(self._resolved, self._choices.boxes)
        if not pipelines:
            return JobLoops()
        return job_loops(
            pipelines,
            connect_jobs(self._settings, pipelines),
            loops=self._loops,
            clock=self._clock,
            observer=self._observer,
            error_tracker=self._track,
            timing=timing_of(self._settings),
            bells=self._bells,
            event_loop=self._event_loop,
            auto_disabled=self._settings.polling_auto_disabled,
            shared_threads=self._settings.jobs.shared_threads,
        )

    def worker(self, services: Sequence[Service]) -> Worker:
        jobs = self._jobs()
        deliveries = {name: self._delivery(pipeline) for name, pipeline in self._pipelines.items()}
        keeper = LeaseKeeper(
            self._servers.queue,
            clock=self._clock,
            length=self._lease,
            longest=self._settings.processor.general_timeout,
        )
        processor = self._processor(deliveries, keeper)
        poller = self._poller(processor.dispatch)
        heartbeat = Heartbeat(
            self._servers.workers,
            self._info(),
            circuits=lambda: [circuit for delivery in deliveries.values() for circuit in delivery.open_circuits()],
            tell=lambda circuit: self._observer.see(events.CircuitOpen(deliveries[circuit.box].box, circuit)),
            at_work=processor.at_work.engagements,
            database=self._servers.store.identity,
            beside=lambda worker, boxes: self._observer.see(events.NamesTwice(worker, boxes)),
        )
        backlog = self._backlog()
        # Without metrics nobody would see the measurements.
        measuring = [self._loop("backlog", backlog.turn)] if self._settings.metrics.enabled else []
        return Worker(
            sources=[*self._sources(poller), *jobs.sources],
            processors=[self._processing(processor), *jobs.processors],
            housekeeping=[
                self._loop("lease-keeper", keeper.turn),
                self._loop("heartbeat", heartbeat.turn),
                self._loop("recorder", self._recorder.turn),
                self._loop_watch(),
                self._loop("tables", TableWatch(self._servers.store, outages=self._outages).turn),
                *self._bounding(),
                *measuring,
                self._retention(),
                *jobs.housekeeping,
            ],
            services=services,
            # Once the leases are released, the next worker can poll at once.
            release=[
                _left_in_redis("the poller's leases", poller.release),
                _left_in_redis("the backlog's leases", backlog.release),
                _left_in_redis("the worker's entry", heartbeat.withdraw),
                Closing(
                    "the last seconds of the history",
                    self._recorder.flush,
                    late="Redis does not answer in time for the stop; lost: the last seconds of the history",
                ),
                *jobs.release,
            ],
            close=[
                jobs.close,
                [closing for delivery in deliveries.values() for closing in delivery.closings()],
                [self._loop_closing()],
                *self._servers.closings(),
            ],
            error_tracker=self._track,
            health=self._health,
            clock=self._clock,
        )

    def _bounding(self) -> list[Loop]:
        boxes = [box for box in self._boxes if self._servers.store.bounded(box)]
        if not boxes:
            return []
        watch = BoundsWatch(boxes, store=self._servers.store, schedule=self._schedule, outages=self._outages)
        return [self._loop("bounds", watch.turn)]

    def _loop_watch(self) -> Loop:
        return self._loop("event-loop", LoopWatch(self._event_loop, tell=logger.warning).turn)

    def _loop_closing(self) -> Closing:
        return Closing("the event loop", self._event_loop.close)

    def _backlog(self) -> Backlog:
        return Backlog(
            self._boxes,
            store=self._servers.store,
            queue=self._servers.queue,
            leases=self._servers.leases,
            outages=self._outages,
            observer=self._observer,
            clock=self._clock,
            token=self._token,
        )

    def _info(self) -> WorkerInfo:
        return WorkerInfo(
            id=self._token,
            host=socket.gethostname(),
            pid=os.getpid(),
            boxes=tuple(box.name for box in self._boxes),
            threads=self._threads,
            started_at=self._clock.now(),
            version=__version__,
        )

    # ── the loops ────────────────────────────────────────────────────────────────────────────────────

    def _make_survey(self) -> Survey | None:
        if len(self._boxes) < MANY:
            return None
        return Survey(
            self._boxes,
            store=self._servers.store,
            schedule=self._schedule,
            pauses=self._pauses,
            outages=self._outages,
        )

    def _sources(self, poller: Poller) -> list[Loop]:
        threads = self._choices.poller_threads or self._settings.poller.threads_count
        loops = [self._loop("poller", poller.turn, count=threads, interrupt=self._schedule.stop)]
        if self._survey is not None:
            loops.append(self._loop("survey", self._survey.turn))
        if self._servers.wakeups is not None:
            listener = Listener(
                self._servers.wakeups,
                self._schedule,
                queue_announced=poller.queue_announced,
                ring=self._bells.ring,
                read_from_start=self._servers.store.read_from_start,
            )
            loops.append(self._loop("listener", listener.turn))
        return loops

    def _poller(self, queue_jobs: QueueJobs) -> Poller:
        settings = self._settings.poller
        pace = Pace(
            rate_limit=settings.rate_limit,
            rate_interval=settings.rate_interval.total_seconds(),
            min_queue_size=settings.min_queue_size,
            max_queue_size=settings.max_queue_size,
            min_queue_timelag=settings.min_queue_timelag.total_seconds(),
            queue_delay=settings.queue_delay.total_seconds(),
        )
        tactic = TACTICS[self._choices.tactic or settings.tactic](pace)
        checks = Checks(
            self._schedule,
            store=self._servers.store,
            queue=self._servers.queue,
            pauses=self._pauses,
            wakeups=self._servers.wakeups,
            tactic=tactic,
            clock=self._clock,
            quiet=never_quiet if self._survey is None else self._survey.quiet,
            timing=TIMING,
        )
        return Poller(
            self._schedule,
            checks=checks,
            store=self._servers.store,
            queue=self._servers.queue,
            leases=self._servers.leases,
            pauses=self._pauses,
            tactic=tactic,
            middlewares=self._middlewares.poll,
            outages=self._outages,
            observer=self._observer,
            tracer=self._tracer,
            clock=self._clock,
            token=self._token,
            queue_jobs=queue_jobs,
            limits=PollLimits(
                regular=settings.regular_items_batch_size,
                retryable=settings.retryable_items_batch_size,
                lease_ttl=min(timedelta(seconds=TIMING.lease), settings.general_timeout),
            ),
            timing=TIMING,
        )

    def _processor(self, deliveries: Mapping[str, Delivery], keeper: LeaseKeeper) -> Processor:
        settings = self._settings.processor
        return Processor(
            deliveries,
            queue=self._servers.queue,
            keeper=keeper,
            care=Care(self._servers.in_hand(self._token)),
            schedule=self._schedule,
            gone=GoneRows(self._servers.items, observer=self._observer),
            pauses=self._pauses,
            outages=self._outages,
            observer=self._observer,
            clock=self._clock,
            limits=ProcessLimits(wait=settings.brpop_delay, cutoff=settings.cutoff_timeout, threads=self._threads),
        )

    def _processing(self, processor: Processor) -> Loop:
        settings = self._settings.processor
        # Before it works, a turn may wait for the other threads and then for a job.
        limit = settings.general_timeout + 2 * settings.brpop_delay
        return self._loop("processor", processor.turn, count=self._threads, limit=limit, interrupt=processor.stop)

    def _delivery(self, pipeline: Pipeline) -> Delivery:
        try:
            return Delivery(
                self._awaiting.pipeline(self._sharing_producers(pipeline)),
                middlewares=self._middlewares,
                store=self._servers.store,
                memory=self._servers.memory,
                observer=CombinedObserver([self._observer, self._recorder]),
                tracer=self._tracer,
                clock=self._clock,
                error_tracker=self._track,
                order=self._order_watch(pipeline.box),
                paused=self._pauses.paused,
                limits=Limits(memory_ttl=10 * self._settings.processor.general_timeout),
            )
        except BoxError as error:
            raise BoxError(f"box {pipeline.box.name}: {error}") from error

    def _order_watch(self, box: Box) -> OrderWatch | None:
        """None for a log: its items are delivered in commit order, which their ids do not show."""
        if box.storage is Storage.LOG:
            return None
        return OrderWatch(box, items=self._servers.items, observer=self._observer)

    def _sharing_producers(self, pipeline: Pipeline) -> Pipeline:
        """Transports that take ``producers`` share this process's Kafka producers, one per configuration."""

        def sharing(spec: TransportSpec) -> TransportSpec:
            build: Callable[..., Any] = spec.build
            if "producers" not in inspect.signature(build).parameters:
                return spec
            return replace(spec, build=partial(build, producers=self._producers))

        return replace(pipeline, transports=tuple(map(sharing, pipeline.transports)))

    @cached_property
    def _producers(self) -> ProducerPool:
        from boxengine.adapters.kafka.pool import ProducerPool  # noqa: PLC0415 - a start without Kafka is shorter

        return ProducerPool(worker=self._name, threads=self._threads, missing=self._health.missing)

    def _retention(self) -> Loop:
        retention = Retention(
            self._boxes,
            store=self._servers.store,
            leases=self._servers.leases,
            outages=self._outages,
            observer=self._observer,
            clock=self._clock,
            token=self._token,
            partitions=self._servers.store,
        )
        return self._loop("retention", retention.turn, limit=timedelta(hours=1), interrupt=retention.stop)

    def _loop(
        self,
        name: str,
        turn: Callable[[], timedelta],
        *,
        count: int = 1,
        limit: timedelta = HOUSEKEEPING_LIMIT,
        interrupt: Callable[[], None] = lambda: None,
    ) -> Loop:
        return self._loops.make(name, turn, count=count, limit=limit, interrupt=interrupt)
