"""The work of a box whose items go to transports: makes the transports, and runs its batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from boxengine.domain.box import Box
from boxengine.engine.delivering.batches.admission import Admission
from boxengine.engine.delivering.batches.batch import Batches, Parts
from boxengine.engine.delivering.batches.kept_back import KeptBackItems
from boxengine.engine.delivering.batches.order import OrderWatch
from boxengine.engine.delivering.batches.recording import Recording
from boxengine.engine.delivering.batches.remembered import Remembered
from boxengine.engine.delivering.batches.resting import Resting
from boxengine.engine.delivering.calls.pipeline import AroundHelpers, Middlewares, Pipeline
from boxengine.engine.delivering.calls.time_limit import TimeLimit
from boxengine.engine.delivering.calls.transports import Carrier, Routes
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.engine.delivering.receivers.circuits import Circuits
from boxengine.engine.delivering.receivers.detour import Detour
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.running.closing import Closing
from boxengine.engine.timing import TIMING
from boxengine.ports import (
    Claim,
    Claims,
    Clock,
    ErrorTracker,
    FailureMemory,
    Observer,
    OpenCircuit,
    Store,
    Tracer,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds one batch."""

    flush_after: float = TIMING.flush
    """Seconds after which a batch records what it has and sends no further item or wave, so that a crash repeats little."""
    memory_ttl: timedelta = timedelta(minutes=30)
    """How long a failure that the database would not store is remembered elsewhere."""
    new: timedelta = timedelta(seconds=TIMING.new)
    """Nothing is remembered of items that are younger: the lease of a batch whose commit failed lasts longer."""


class Delivery:
    """``Work`` that delivers. Shared by all processor threads; of past batches it knows only what must be left alone."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        middlewares: Middlewares,
        store: Store,
        memory: FailureMemory,
        observer: Observer,
        tracer: Tracer,
        clock: Clock,
        error_tracker: ErrorTracker,
        order: OrderWatch | None = None,
        paused: Callable[[Box], bool] = lambda _box: False,
        limits: Limits = Limits(),
    ) -> None:
        """Makes the box's transports; what their constructors raise comes through.

        Args:
            order: told of what was delivered; None: nobody watches the order.
            paused: asked between any two items whether sending must stop, because somebody has paused the box.
        """
        self.box = box = pipeline.box
        self._routes = Routes(tuple(Carrier(spec, box=box) for spec in pipeline.transports))
        self._circuits = self._limited(middlewares, observer, clock)
        plain = not self._routes.in_session and not pipeline.retry_strategies
        claims = store.plain_claims(box) if plain else store.claims(box)
        resting = Resting(clock, box.strict_order)
        remembered = Remembered(box, memory, observer=observer, ttl=limits.memory_ttl)
        self._batches = Batches(
            Parts(
                box=box,
                # Nobody asks a plain claim for more: no transport is there to take its session, no strategy to look back.
                claims=cast("Claims[Claim]", claims),
                routes=self._routes,
                circuits=self._circuits,
                detour=Detour(box, (carrier.name for carrier in self._routes.carriers), clock=clock),
                middlewares=middlewares,
                admission=Admission(
                    box,
                    strategies=pipeline.retry_strategies,
                    resting=resting,
                    remembered=remembered,
                    new=limits.new,
                ),
                recording=Recording(
                    box, resting=resting, remembered=remembered, observer=observer, error_tracker=error_tracker
                ),
                remembered=remembered,
                kept_back=KeptBackItems(box, observer=observer),
                order=order,
                watch=Watch(box, observer, tracer, clock.monotonic),
                clock=clock,
                paused=paused,
                flush_after=limits.flush_after,
            )
        )

    def run(self, errand: Errand) -> Report:
        """Claims, admits, sends and settles one batch; see ``Work.run``."""
        return self._batches.run(errand)

    def open_circuits(self) -> list[OpenCircuit]:
        """The transports that are left alone just now."""
        return self._circuits.open()

    def close(self) -> None:
        """Lets the transports free what they hold."""
        self._routes.close()

    def closings(self) -> list[Closing]:
        """How to close each transport by itself."""
        return [
            Closing(f"transport {carrier.name} of box {self.box.name}", carrier.close)
            for carrier in self._routes.carriers
        ]

    def _limited(self, middlewares: Middlewares, observer: Observer, clock: Clock) -> Circuits:
        """A circuit breaker for each transport, told of calls that take longer than the transport's timeout."""
        names = dict.fromkeys(carrier.name for carrier in self._routes.carriers)
        circuits = Circuits(self.box, names, observer=observer, clock=clock)
        instances: tuple[object, ...] = middlewares.batch_process
        around = [each.in_helper for each in instances if isinstance(each, AroundHelpers)]
        for carrier in self._routes.carriers:
            if carrier.timeout is not None:
                breaker = circuits.breaker(carrier.name)
                carrier.limit(
                    TimeLimit(
                        carrier.timeout,
                        name=carrier.name,
                        hanging=breaker.hanging,
                        returned=breaker.returned,
                        around=around,
                    )
                )
        return circuits
