"""A box in memory, and transports that do what a test tells them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.box import Box, BoxType, StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.outcome import Settlement
from boxengine.engine.delivering.batches.delivery import Delivery, Limits
from boxengine.engine.delivering.calls.deadline import Deadline
from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline, TransportSpec
from boxengine.engine.delivering.calls.sending import Sending
from boxengine.engine.delivering.calls.sent import Sent
from boxengine.engine.delivering.calls.transports import Carrier, Routes
from boxengine.engine.delivering.calls.watch import Watch
from boxengine.engine.delivering.holds.sizing import ROWS
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.engine.running.lease_length import LeaseLength
from boxengine.ports import NotTaken, Tracer
from boxengine.ports.events import CircuitChanged, Event, KeptBack, Settled, Throttled, Transported

BUCKETS = 4


def make_box(**policy: Any) -> Box:
    return Box(
        **{
            "name": "order_outbox_item",
            "type": BoxType.OUTBOX,
            "table": "order_outbox_items",
            "bucket_size": BUCKETS,
            **policy,
        }
    )


def spec(transport: Any, *, name: str = "receiver", event_name: str | None = None, **more: Any) -> TransportSpec:
    return TransportSpec(name=name, build=lambda: transport, event_name=event_name, **more)


def usual(lease: timedelta) -> LeaseLength:
    """A lease length that never changes, however slow the coordinator is."""
    return LeaseLength(lease, round_trips=0, observer=NullObserver())


def accept(_item: Item) -> Any:
    return None


@dataclass(frozen=True, slots=True)
class Until:
    """A term with a fixed end."""

    valid_until: float = 1e9


class Scripted(Deadline):
    """A deadline that passes when the test says so."""

    def __init__(self, passes: Callable[[bool], bool]) -> None:
        self._script = passes
        self._passed = False

    def passed(self, *, begun: bool) -> bool:
        self._passed = self._passed or self._script(begun)
        return self._passed


class Single:
    """Takes items one by one."""

    def __init__(self, answer: Callable[[Item], Any] = accept) -> None:
        self.answer = answer
        self.ids: list[int] = []
        self.payloads: list[Any] = []

    def __call__(self, item: Item, payload: Any) -> Any:
        self.ids.append(item.id)
        self.payloads.append(payload)
        return self.answer(item)


class Batches:
    """Takes batches; if ``answer`` raises, the whole batch does."""

    def __init__(self, answer: Callable[[Item], Any] = accept) -> None:
        self.answer = answer
        self.calls: list[list[int]] = []

    def call_batch(self, items: Sequence[Item]) -> list[Any]:
        self.calls.append([item.id for item in items])
        return [self.answer(item) for item in items]

    @property
    def ids(self) -> list[int]:
        return [item_id for call in self.calls for item_id in call]


class Transports:
    """Keeps what the engine reports about calls and batches."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.settlements: list[Settlement] = []
        self.kept: list[list[int]] = []
        self.throttlings: list[tuple[str, str]] = []
        self.seconds: dict[str, float] = defaultdict(float)
        """By transport, the seconds spent in it."""
        self.circuits: list[tuple[str, bool]] = []
        """The circuits that opened (True) and closed (False)."""

    def see(self, event: Event) -> None:
        match event:
            case Transported():
                self.calls.append((event.transport, event.items, event.failed))
                self.seconds[event.transport] += event.seconds
            case Throttled():
                self.throttlings.append((event.throttler, event.status))
            case KeptBack(items=items):
                self.kept.append([item.id for item in items])
            case Settled():
                self.settlements.append(event.settlement)
            case CircuitChanged():
                self.circuits.append((event.transport, event.circuit is not None))
            case _:
                pass


class Refusals(NullTracer):
    """Keeps what transports said of items that they did not take."""

    def __init__(self) -> None:
        self.told: dict[int, str] = {}

    @contextmanager
    def sending(self, box: Box, transport: str, items: Sequence[Item]) -> Iterator[None]:
        try:
            yield
        except NotTaken as refused:
            self.told |= refused.reasons
            raise


NONE = Middlewares()


class Bench:
    """A box, its rows, and the parts of the engine that deliver them."""

    def __init__(self, *, fault: Callable[[str], None] = lambda _step: None, **policy: Any) -> None:
        self.clock = ManualClock()
        self.box = make_box(**policy)
        self.store = MemoryStore(self.clock, fault=fault)
        self.memory = MemoryFailures(clock=self.clock)
        self.observer = Transports()
        self.tracer: Tracer = NullTracer()
        self.tracked: list[tuple[Any, dict[str, Any]]] = []

    def insert(self, *keys: object, **columns: Any) -> list[int]:
        return [self.store.insert(self.box, event_key=key, **columns) for key in keys]

    def row(self, row_id: int) -> Any:
        return next(row for row in self.store.rows(self.box) if row.id == row_id)

    def send(
        self,
        *specs: TransportSpec,
        strict_order: StrictOrder = StrictOrder.NONE,
        middlewares: Sequence[Any] = (),
        expired: Callable[[bool], bool] = lambda _begun: False,
    ) -> Sent:
        """Sends all pending rows through these transports."""
        with self.store.claims(self.box).open(dict.fromkeys(self.box.buckets), 1000) as claim:
            sending = Sending(
                claim,
                Routes(tuple(map(Carrier, specs))),
                middlewares=middlewares,
                strict_order=strict_order,
                deadline=Scripted(expired),
                watch=Watch(self.box, self.observer, self.tracer, self.clock.monotonic),
            )
            sent = sending.send(claim.items)
            claim.commit(Settlement())
        return sent

    def delivery(
        self,
        *specs: TransportSpec,
        strategies: Sequence[Any] = (),
        middlewares: Middlewares = NONE,
        **limits: Any,
    ) -> Delivery:
        return Delivery(
            Pipeline(box=self.box, transports=specs, retry_strategies=tuple(strategies)),
            middlewares=middlewares,
            store=self.store,
            memory=self.memory,
            observer=self.observer,
            tracer=self.tracer,
            clock=self.clock,
            error_tracker=lambda error, /, **context: self.tracked.append((error, context)),
            limits=Limits(**limits),
        )

    def deliver(self, *specs: TransportSpec, **options: Any) -> Report:
        """Delivers one batch from all buckets."""
        return self.run(self.delivery(*specs, **options))

    def run(self, delivery: Delivery, *, until: float = 1e9, valid_until: float = 1e9, rows: int = ROWS) -> Report:
        buckets = dict.fromkeys(self.box.buckets)
        return delivery.run(Errand(positions=buckets, rows=rows, until=until, term=Until(valid_until)))
