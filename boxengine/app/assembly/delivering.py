"""The loop that delivers, and what it delivers with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from boxengine.adapters.telemetry.combined import CombinedObserver
from boxengine.app.assembly.ground import Ground
from boxengine.domain.box import Box, Storage
from boxengine.domain.signatures import signature_of
from boxengine.engine.delivering.batches.delivery import Delivery, Limits
from boxengine.engine.delivering.batches.order import OrderWatch
from boxengine.engine.delivering.calls.pipeline import Pipeline, TransportSpec
from boxengine.engine.delivering.care import Care
from boxengine.engine.delivering.holds.gone import GoneRows
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.running.closing import Closing
from boxengine.engine.running.history import HistoryRecorder
from boxengine.engine.running.worker import Loop
from boxengine.errors import BoxError

if TYPE_CHECKING:
    from boxengine.adapters.kafka.pool import ProducerPool


class Delivering:
    """The processor, with a delivery for each box."""

    def __init__(self, ground: Ground, recorder: HistoryRecorder) -> None:
        """Raises:
        BoxError: a transport cannot be made.
        """
        self._ground = ground
        self._recorder = recorder
        self.deliveries = {name: self._delivery(pipeline) for name, pipeline in ground.pipelines.items()}
        self.keeper = LeaseKeeper(
            ground.servers.queue,
            clock=ground.clock,
            length=ground.lease,
            longest=ground.settings.processor.general_timeout,
            locks_decide=ground.servers.store.locks_decide,
        )
        self.processor = self._processor()

    def closings(self) -> list[Closing]:
        """How the transports are closed."""
        return [closing for delivery in self.deliveries.values() for closing in delivery.closings()]

    def _processor(self) -> Processor:
        settings = self._ground.settings.processor
        return Processor(
            self.deliveries,
            queue=self._ground.servers.queue,
            keeper=self.keeper,
            care=Care(self._ground.servers.in_hand(self._ground.token)),
            schedule=self._ground.schedule,
            gone=GoneRows(self._ground.servers.items, observer=self._ground.observer),
            pauses=self._ground.pauses,
            outages=self._ground.outages,
            observer=self._ground.observer,
            clock=self._ground.clock,
            limits=ProcessLimits(
                wait=settings.brpop_delay, cutoff=settings.cutoff_timeout, threads=self._ground.threads
            ),
        )

    def loop(self) -> Loop:
        """The threads that take buckets and deliver their items."""
        settings = self._ground.settings.processor
        # Before it works, a turn may wait for the other threads and then for a job.
        limit = settings.general_timeout + 2 * settings.brpop_delay
        return self._ground.loops.make(
            "processor", self.processor.turn, count=self._ground.threads, limit=limit, interrupt=self.processor.stop
        )

    def _delivery(self, pipeline: Pipeline) -> Delivery:
        try:
            return Delivery(
                self._ground.awaiting.pipeline(self._sharing_producers(pipeline)),
                middlewares=self._ground.middlewares,
                store=self._ground.servers.store,
                memory=self._ground.servers.memory,
                observer=CombinedObserver([self._ground.observer, self._recorder]),
                tracer=self._ground.tracer,
                clock=self._ground.clock,
                error_tracker=self._ground.track,
                order=self._order_watch(pipeline.box),
                paused=self._ground.pauses.paused,
                limits=Limits(memory_ttl=10 * self._ground.settings.processor.general_timeout),
            )
        except BoxError as error:
            raise BoxError(f"box {pipeline.box.name}: {error}") from error

    def _order_watch(self, box: Box) -> OrderWatch | None:
        """None for a log: its items are delivered in commit order, which their ids do not show."""
        if box.storage is Storage.LOG:
            return None
        servers = self._ground.servers
        return OrderWatch(
            box,
            items=servers.items,
            observer=self._ground.observer,
            losses=lambda: servers.store.losses,
            server=servers.store.server,
        )

    def _sharing_producers(self, pipeline: Pipeline) -> Pipeline:
        """Transports that take ``producers`` share this process's Kafka producers, one per configuration."""

        def sharing(spec: TransportSpec) -> TransportSpec:
            build: Callable[..., Any] = spec.build
            return replace(spec, build=partial(build, producers=self._producers)) if _takes_producers(build) else spec

        return replace(pipeline, transports=tuple(map(sharing, pipeline.transports)))

    @cached_property
    def _producers(self) -> ProducerPool:
        from boxengine.adapters.kafka.pool import ProducerPool  # noqa: PLC0415 - a start without Kafka is shorter

        return ProducerPool(worker=self._ground.name, threads=self._ground.threads, missing=self._ground.health.missing)


def _takes_producers(build: Callable[..., Any]) -> bool:
    try:
        return "producers" in signature_of(build).parameters
    except ValueError:
        return False  # a class of users that is derived from one in C, such as ``threading.local``
