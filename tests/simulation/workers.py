"""A worker of the simulation: the engine's own loops over simulated ports, as the composition root puts them together."""

from __future__ import annotations

import math
import traceback
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, cast

from boxengine.adapters.memory.in_hand import MemoryInHand
from boxengine.adapters.memory.wakeups import MemoryWakeups
from boxengine.domain import bounds
from boxengine.domain.box import Storage
from boxengine.domain.item import Item
from boxengine.engine.awaiting.wrapping import Awaiting
from boxengine.engine.delivering.batches.delivery import Delivery, Limits
from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline, TransportSpec
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.engine.polling.bounding import BoundsWatch
from boxengine.engine.polling.checks import Checks
from boxengine.engine.polling.listener import Listener
from boxengine.engine.polling.looks import PollLimits
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.poller import Poller
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.tactics import TACTICS
from boxengine.engine.polling.throttlers import Pace
from boxengine.engine.retention import Retention
from boxengine.engine.running.lease_length import LeaseLength
from boxengine.engine.running.outages import Outages
from boxengine.errors import Unavailable
from boxengine.ports import Clock, Hold, Store
from tests.simulation.event_loop import SimulatedEventLoop
from tests.simulation.faults import Faults, InHandSide, QueueSide, RedisSide, StoreSide
from tests.simulation.receivers import Receiver, Refused, fails_alone, transport
from tests.simulation.record import Record
from tests.simulation.scenario import KILLING, BoxPlan, Scenario
from tests.simulation.scheduler import Process, Scheduler, SimulatedCondition, SimulatedLock, Strand
from tests.simulation.servers import SharedServers

PREEMPTED = 0.1
"""Chance that a delivery loses its processor when it looks at the clock."""
PACE = Pace(rate_limit=20)
"""One check of a quiet box in three seconds, so that a lost hint shows."""
BOUNDS_EVERY = 0.02
"""Seconds; in production it is a quarter of a second."""
RETENTION_EVERY = 2.0
"""Seconds; in production it is ten minutes."""


@dataclass(slots=True)
class LocalClock:
    """The clock of one machine: its wall clock may be wrong, its monotonic clock is not."""

    true: Clock
    skew: timedelta = timedelta(0)

    def now(self) -> datetime:
        return self.true.now() + self.skew

    def monotonic(self) -> float:
        return self.true.monotonic()


@dataclass(slots=True)
class PreemptiveClock:
    """The same, at each look of which the thread may lose its processor: code between two looks is not atomic."""

    local: LocalClock
    scheduler: Scheduler

    def now(self) -> datetime:
        return self.local.now()

    def monotonic(self) -> float:
        if self.scheduler.random.random() < PREEMPTED:
            self.scheduler.switch()
        return self.local.monotonic()


class SimulatedWorker:
    """One process: made, started, crashed, paused or stopped."""

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        servers: SharedServers,
        *,
        faults: Faults,
        scheduler: Scheduler,
        record: Record,
    ) -> None:
        self.process = Process(name)
        self.clock = LocalClock(servers.clock)
        self._scenario = scenario
        self._servers = servers
        self._faults = faults
        self._scheduler = scheduler
        self._record = record
        self._taking_in = True
        self._processing = 0
        self.stopping = False
        self.wakeups = MemoryWakeups()
        self.wakeups._changed = cast("Any", SimulatedCondition(scheduler))
        self._store = cast("Any", StoreSide(servers.store, faults, scheduler, record))
        self._queue = cast("Any", QueueSide(servers.queue, faults, scheduler, record))
        self._outages = Outages(observer=NullObserver(), error_tracker=self._track, clock=self.clock)
        self._assemble()

    def start(self) -> None:
        """Its strands begin."""
        if any("async" in shape for plan in self._scenario.boxes for *_, shape in plan.routes):
            self._scheduler.spawn(f"{self.process.name}.event-loop", self.process, self._event_loop.virtual.serve)
        self._loop("poller", self._poller.turn, lambda: self._taking_in)
        self._loop("listener", self._listener.turn, lambda: self._taking_in)
        for number in range(self._scenario.threads):
            self._processing += 1
            self._loop(f"processor{number}", self._processor.turn, lambda: not self.stopping, then=self._one_less)
        self._loop("keeper", self._keeper.turn, lambda: self._processing > 0)
        if self._scenario.pace is not bounds.PACE and self._bounded:
            self._loop("bounds", self._bounds.turn, lambda: not self.stopping, pause=BOUNDS_EVERY)
        self._loop("retention", self._retention.turn, lambda: not self.stopping, pause=RETENTION_EVERY)

    def stop(self) -> None:
        """Asks all loops to stop, sources first, as ``Worker.stop`` does."""
        self._taking_in = False
        self._schedule.stop()
        self.stopping = True
        self._processor.stop()
        self._retention.stop()

    @property
    def working(self) -> bool:
        """Whether it still delivers."""
        return self.process.alive and not self.stopping

    def _assemble(self) -> None:
        scenario, clock, scheduler, name = self._scenario, self.clock, self._scheduler, self.process.name
        boxes = [plan.box for plan in scenario.boxes]
        coordination = cast("Any", partial(RedisSide, faults=self._faults))
        self._schedule = Schedule(boxes, partitions=scenario.partitions, clock=clock)
        self._schedule._changed = cast("Any", SimulatedCondition(scheduler))
        leases = coordination(self._servers.leases)
        self.pauses = PauseWatch(coordination(self._servers.pauses), boxes, clock=clock, resumed=self._schedule.wake)
        self.pauses._lock = cast("Any", SimulatedLock(scheduler))
        longest = scenario.longest_queue
        tactic = TACTICS[scenario.tactic](
            replace(PACE, min_queue_size=min(longest, PACE.min_queue_size), max_queue_size=longest)
        )
        checks = Checks(
            self._schedule,
            store=self._store,
            queue=self._queue,
            pauses=self.pauses,
            wakeups=self.wakeups,
            tactic=tactic,
            clock=clock,
        )
        self._keeper = LeaseKeeper(
            self._queue,
            clock=clock,
            length=LeaseLength(scenario.lease_ttl, round_trips=0, observer=NullObserver()),
            longest=max(timedelta(seconds=10), scenario.cutoff),
            locks_decide=lambda box: scenario.without_leases or box.storage is Storage.LOG,
        )
        if scenario.without_leases and KILLING not in scenario.faults:
            cast("Any", self._keeper.vacancies)._born = -math.inf
        self._event_loop = SimulatedEventLoop(scheduler)
        self._awaiting = Awaiting(
            self._event_loop,
            lend=lambda session, _visit: nullcontext(session),
            clock=self.clock,
            cutoff=scenario.cutoff,
            paused=self.pauses.paused,
            flush_after=scenario.flush_after,
        )
        memory = coordination(self._servers.memory)
        self._processor = Processor(
            {plan.box.name: self._delivery(plan, self._store, memory) for plan in scenario.boxes},
            queue=self._queue,
            keeper=self._keeper,
            care=self._care() if KILLING in scenario.faults else None,
            schedule=self._schedule,
            pauses=self.pauses,
            outages=self._outages,
            observer=NullObserver(),
            clock=clock,
            limits=ProcessLimits(
                wait=timedelta(seconds=2),
                cutoff=scenario.cutoff,
                turn=scenario.turn,
                threads=scenario.threads,
                rows=scenario.rows,
                share_from=scenario.share_from,
            ),
        )
        self._processor._taking._idle._changed = cast("Any", SimulatedCondition(scheduler))
        if scenario.without_leases:
            cast("Any", self._processor._taking.gathering).suffices = lambda _box: True
        self._note_beginnings()
        self._poller = Poller(
            self._schedule,
            checks=checks,
            store=self._store,
            queue=self._queue,
            leases=leases,
            pauses=self.pauses,
            tactic=tactic,
            middlewares=(),
            outages=self._outages,
            observer=NullObserver(),
            tracer=NullTracer(),
            clock=clock,
            token=name,
            queue_jobs=self._processor.dispatch,
            hand_out=self._processor.hand_out,
            limits=PollLimits(regular=4, retryable=2, lease_ttl=scenario.lease_ttl),
        )
        self._listener = Listener(
            self.wakeups,
            self._schedule,
            queue_announced=self._poller.queue_announced,
            want=self._processor.want,
            read_from_start=self._store.read_from_start,
        )
        self._bounded = [box for box in boxes if self._store.bounded(box)]
        self._bounds = BoundsWatch(
            self._bounded,
            store=self._store,
            ping=self._store.ping,
            schedule=self._schedule,
            outages=self._outages,
            clock=self.clock,
        )
        self._retention = Retention(
            boxes,
            store=self._store,
            leases=leases,
            outages=self._outages,
            observer=NullObserver(),
            clock=clock,
            token=name,
            partitions=self._store,
        )

    def _note_beginnings(self) -> None:
        """A hold may be taken by one strand and worked on by another."""
        processor, work = cast("Any", self._processor), self._processor._work

        def noted(hold: Hold) -> None:
            self._queue.begin(hold)
            work(hold)

        processor._work = noted

    def _care(self) -> Care:
        noted = MemoryInHand(self._servers.in_hand, worker=self.process.name)
        care = Care(cast("Any", InHandSide(noted, self._faults, self._record, worker=self.process.name)))
        care._alone = cast("Any", SimulatedLock(self._scheduler))
        return care

    def _delivery(self, plan: BoxPlan, store: Store, memory: Any) -> Delivery:
        specs = tuple(
            TransportSpec(
                name=name,
                event_name=event,
                build=partial(transport, shape, self._receiver(name)),
                timeout=plan.timeout if "async" in shape else None,
            )
            for name, event, shape in plan.routes
        )
        pipeline = Pipeline(box=plan.box, transports=specs, retry_strategies=plan.strategies)
        coroutines = all("async" in shape for *_, shape in plan.routes)
        around = self._async_item_middleware if coroutines else self._item_middleware
        middlewares = Middlewares(item_process=(around,) if plan.item_middleware else ())
        return Delivery(
            self._awaiting.pipeline(pipeline),
            middlewares=self._awaiting.middlewares(middlewares),
            store=store,
            memory=memory,
            observer=NullObserver(),
            tracer=NullTracer(),
            clock=PreemptiveClock(self.clock, self._scheduler),
            error_tracker=self._track,
            paused=self.pauses.paused,
            limits=Limits(
                flush_after=self._scenario.flush_after,
                new=self._scenario.lease_ttl / 4,
            ),
        )

    def _receiver(self, name: str) -> Receiver:
        return Receiver(
            name,
            self._faults,
            self._scheduler,
            self._record,
            longest=self._scenario.transport_time,
        )

    def _item_middleware(self, item: Item, call_next: Callable[[], Any]) -> Any:
        self._perhaps_raise(item, "before")
        result = call_next()
        self._perhaps_raise(item, "after")
        return result

    async def _async_item_middleware(self, item: Item, call_next: Callable[[], Awaitable[Any]]) -> Any:
        self._perhaps_raise(item, "before")
        result = await call_next()
        self._perhaps_raise(item, "after")
        return result

    def _perhaps_raise(self, item: Item, when: str) -> None:
        claim = self._faults.claim()
        if self._faults.strikes("middleware raises", f"{when} item {item.id}"):
            if claim is not None:
                fails_alone(claim, item)
            raise Refused(f"middleware, {when}")

    # ── loops ────────────────────────────────────────────────────────────────────────────────────────

    def _loop(
        self,
        name: str,
        turn: Callable[[], timedelta],
        go_on: Callable[[], bool],
        *,
        pause: float | None = None,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        def body() -> None:
            while go_on():
                seconds = self._take_turn(name, turn)
                self._scheduler.sleep(seconds if pause is None else pause)
            then()

        strand: Strand = self._scheduler.spawn(f"{self.process.name}.{name}", self.process, body)
        strand.context["role"] = "retention" if name == "retention" else "engine"

    def _take_turn(self, name: str, turn: Callable[[], timedelta]) -> float:
        """As ``ThreadGroup`` does it, but that waiting is the scheduler's business."""
        try:
            seconds = turn().total_seconds()
        except Exception as error:  # as in the thread group
            return self._outages.failed(name, error)
        self._outages.worked(name)
        return seconds

    def _one_less(self) -> None:
        self._processing -= 1

    def _track(self, error: BaseException | str, /, **context: Any) -> None:
        """Outages that no injected fault explains are errors of the engine."""
        if "what" in context and isinstance(error, BaseException) and not isinstance(error, Unavailable):
            self._record.errors.append("".join(traceback.format_exception(error)))
