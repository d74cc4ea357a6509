"""What takes its time before the first item is sent must not keep everything from being sent, for ever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.failures import MemoryFailures
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Item, Status
from boxengine.domain.job import Job
from boxengine.engine.delivering.batches.delivery import Delivery, Limits
from boxengine.engine.delivering.calls.pipeline import Middlewares, Pipeline, TransportSpec
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.delivering.holds.sizing import ROWS
from boxengine.engine.delivering.work import Errand
from boxengine.engine.observation import NullObserver, NullTracer
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from tests.unit.engine.bench import usual

TTL = timedelta(seconds=4)


class Recorder:
    def __init__(self) -> None:
        self.sent: list[int] = []

    def call_batch(self, items: Sequence[Item]) -> list[bool]:
        self.sent += [item.id for item in items]
        return [True] * len(items)


def holding_of(queue: MemoryJobQueue, box: Box, *buckets: int) -> Holding:
    queue.push(box, [Job(bucket, 0, (1,)) for bucket in buckets])
    hold = queue.take([box], wait=timedelta(0), ttl=TTL, share=1)
    assert hold is not None
    return Holding(hold, queue)


def delivery_of(box: Box, store: MemoryStore, clock: ManualClock, transport: Any, **more: Any) -> Delivery:
    return Delivery(
        Pipeline(box=box, transports=(TransportSpec(name="to", build=lambda: transport),), retry_strategies=()),
        middlewares=Middlewares(),
        store=store,
        memory=MemoryFailures(clock=clock),
        observer=NullObserver(),
        tracer=NullTracer(),
        clock=clock,
        error_tracker=lambda *_, **__: None,
        **more,
    )


def test_payload_builders_slower_than_the_flush_interval_do_not_stop_the_batch() -> None:
    clock, recorder = ManualClock(), Recorder()
    store, queue = MemoryStore(clock), MemoryJobQueue(clock=clock)

    def build(item: Item) -> Any:
        clock.advance(timedelta(seconds=1))
        return item.payload

    box = Box(name="box", type=BoxType.OUTBOX, table="box", bucket_size=1, payload_builder=build)
    ids = [store.insert(box, event_key=1) for _ in range(3)]
    delivery = delivery_of(box, store, clock, recorder, limits=Limits(flush_after=2.0))
    delivery.run(Errand(positions={0: None}, rows=10, until=90.0, term=holding_of(queue, box, 0)))
    assert recorder.sent == ids


def test_a_hold_that_lost_a_bucket_has_run_out_and_stays_so() -> None:
    clock = ManualClock()
    queue = MemoryJobQueue(clock=clock)
    box = Box(name="box", type=BoxType.OUTBOX, table="box", bucket_size=2)
    keeper = LeaseKeeper(queue, clock=clock, length=usual(TTL), longest=timedelta(minutes=1))
    holding = holding_of(queue, box, 0, 1)
    queue.lose_leases(box)
    with keeper.keeping(holding):
        for _ in range(3):
            clock.advance(TTL / 2)
            keeper.turn()
            assert holding.valid_until <= clock.monotonic()
    assert holding.buckets == set()


def test_a_hold_that_lost_nothing_is_renewed() -> None:
    clock = ManualClock()
    queue = MemoryJobQueue(clock=clock)
    box = Box(name="box", type=BoxType.OUTBOX, table="box", bucket_size=1)
    keeper = LeaseKeeper(queue, clock=clock, length=usual(TTL), longest=timedelta(minutes=1))
    holding = holding_of(queue, box, 0)
    with keeper.keeping(holding):
        for _ in range(5):
            clock.advance(TTL / 2)
            keeper.turn()
            assert holding.valid_until > clock.monotonic()


def test_batches_that_outlast_their_transaction_become_smaller_until_they_are_recorded() -> None:
    clock, longest = ManualClock(), timedelta(minutes=3)
    store, queue = MemoryStore(clock), MemoryJobQueue(clock=clock)
    calls: list[int] = []

    class Slow:
        def call_batch(self, items: Sequence[Item]) -> list[bool]:
            calls.append(len(items))
            clock.advance(timedelta(seconds=len(items)))
            store.cut_idle(longest)
            return [True] * len(items)

    box = Box(name="box", type=BoxType.OUTBOX, table="box", bucket_size=1)
    for number in range(ROWS):
        store.insert(box, event_key=number)
    processor = Processor(
        {box.name: delivery_of(box, store, clock, Slow())},
        queue=queue,
        keeper=LeaseKeeper(queue, clock=clock, length=usual(TTL), longest=longest),
        schedule=Schedule([box], partitions=1, clock=clock),
        pauses=PauseWatch(MemoryPauses(), [box], clock=clock),
        outages=Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=clock),
        observer=NullObserver(),
        clock=clock,
        limits=ProcessLimits(threads=1, wait=timedelta(0), cutoff=longest / 2),
    )
    for _ in range(20):
        queue.push(box, [Job(0, 0, (1,))])
        processor.turn()
        clock.advance(2 * TTL)
    assert {row.status for row in store.rows(box)} == {Status.DELIVERED}
    lost = [size for size in calls if size > longest.total_seconds()]
    assert lost == [ROWS, ROWS // 2]
