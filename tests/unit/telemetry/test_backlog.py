"""Who measures how far behind a box is, and what is said of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.store import MemoryStore
from boxengine.adapters.telemetry.prometheus import PrometheusObserver
from boxengine.app.running.loops import HOUSEKEEPING_LIMIT
from boxengine.domain.box import Box, BoxType
from boxengine.domain.job import Job
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.running.backlog import INTERVAL, STRANDED_INTERVAL, Backlog
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.rounds import SOON, TURN_LIMIT
from boxengine.errors import QueueUnavailable, StoreUnavailable
from boxengine.ports import Leases
from boxengine.ports.events import Event, OldestPending, OutageBegan, QueueMeasured, Stranded

BOXES = [Box(name=f"{name}_item", type=BoxType.OUTBOX, table=f"{name}_items") for name in ("order", "payment")]
ORDER = BOXES[0]


class Told:
    def __init__(self) -> None:
        self.ages: list[tuple[str, float]] = []
        self.queues: list[tuple[str, int, float]] = []
        self.stranded_rows: list[tuple[str, int]] = []
        self.outages: list[str] = []

    def see(self, event: Event) -> None:
        match event:
            case OldestPending(box=box):
                self.ages.append((box.name, event.seconds))
            case Stranded(box=box):
                self.stranded_rows.append((box.name, event.items))
            case QueueMeasured(box=box):
                self.queues.append((box.name, event.length, event.lag))
            case OutageBegan():
                self.outages.append(event.what)
            case _:
                pass


class NoLeases:
    def acquire(self, name: str, token: str, *, ttl: timedelta) -> bool:
        raise QueueUnavailable("refused")

    def release(self, name: str, token: str) -> None:
        raise QueueUnavailable("refused")


class World:
    """One database and one Redis, and workers that measure."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.queue = MemoryJobQueue(clock=self.clock)
        self.leases = MemoryLeases(clock=self.clock)
        self.pauses = MemoryPauses()

    def worker(self, token: str, observer: Any, **parts: Any) -> Backlog:
        leases: Leases = parts.get("leases", self.leases)
        boxes = parts.get("boxes", BOXES)
        return Backlog(
            boxes,
            store=parts.get("store", self.store),
            queue=parts.get("queue", self.queue),
            leases=leases,
            pauses=PauseWatch(self.pauses, boxes, clock=self.clock),
            outages=Outages(observer=observer, error_tracker=lambda *_a, **_k: None, clock=self.clock),
            observer=observer,
            clock=self.clock,
            token=token,
        )


def test_the_age_of_the_oldest_pending_row_and_the_queue_are_told_of_each_box() -> None:
    world, told = World(), Told()
    world.store.insert(ORDER, event_key=1)
    now = int(world.clock.now().timestamp())
    world.queue.push(ORDER, [Job(1, now, (1,))])
    world.clock.advance(timedelta(seconds=90))
    assert world.worker("a", told).turn() == INTERVAL
    assert told.ages == [("order_item", 90.0), ("payment_item", 0.0)]
    assert told.queues == [("order_item", 1, 90.0), ("payment_item", 0, 0.0)]


def test_jobs_of_a_paused_box_count_and_have_no_lag_until_it_is_resumed() -> None:
    world, told = World(), Told()
    for box in BOXES:
        world.queue.push(box, [Job(1, int(world.clock.now().timestamp()), (1,))])
    worker = world.worker("a", told)
    world.pauses.set(ORDER, polling_enabled=False)
    world.clock.advance(timedelta(minutes=10))
    worker.turn()
    assert told.queues == [("order_item", 1, 0.0), ("payment_item", 1, 600.0)]
    world.pauses.set(ORDER, polling_enabled=True)
    world.clock.advance(timedelta(minutes=1))
    worker.turn()
    assert told.queues[2:] == [("order_item", 1, 660.0), ("payment_item", 1, 660.0)]


def test_of_several_workers_one_looks_until_it_stops_or_dies() -> None:
    world, first, second = World(), Told(), Told()
    a, b = world.worker("a", first), world.worker("b", second)
    for _ in range(3):
        a.turn()
        b.turn()
        world.clock.advance(INTERVAL)
    assert (len(first.ages), len(second.ages)) == (6, 0)
    a.release()
    b.turn()
    assert len(second.ages) == 2
    world.clock.advance(timedelta(minutes=1))
    a.turn()
    assert len(first.ages) == 8


def test_what_one_worker_says_is_gone_from_its_metrics_soon_after_another_took_over() -> None:
    world, registry = World(), CollectorRegistry()
    observer = PrometheusObserver(clock=world.clock, partitions=4, registry=registry)
    world.store.insert(ORDER, event_key=1)
    a, b = world.worker("a", observer), world.worker("b", Told())
    labels = {"type": "outbox", "name": "order_item", "owner": ""}
    world.clock.advance(timedelta(seconds=900))
    a.turn()
    assert registry.get_sample_value("outbox_oldest_pending_age_seconds", labels) == 900
    world.leases.flush()
    b.turn()
    world.clock.advance(timedelta(seconds=61))
    b.turn()
    a.turn()
    assert registry.get_sample_value("outbox_oldest_pending_age_seconds", labels) is None


def test_stranded_rows_are_counted_once_a_minute_by_the_worker_that_looks() -> None:
    world, told, other = World(), Told(), Told()
    world.store.insert(ORDER, event_key=1, bucket=ORDER.bucket_size)
    worker, spare = world.worker("a", told), world.worker("b", other)
    for _ in range(int(STRANDED_INTERVAL / INTERVAL)):
        worker.turn()
        spare.turn()
        world.clock.advance(INTERVAL)
    assert told.stranded_rows == [("order_item", 1), ("payment_item", 0)]
    worker.turn()
    assert told.stranded_rows[2:] == [("order_item", 1), ("payment_item", 0)]
    assert other.stranded_rows == []


def test_a_worker_that_looks_again_after_another_counts_stranded_rows_at_once() -> None:
    world, told = World(), Told()
    worker, other = world.worker("a", told), world.worker("b", Told())
    worker.turn()
    world.leases.flush()
    other.turn()
    worker.turn()
    world.leases.flush()
    worker.turn()
    assert told.stranded_rows == [("order_item", 0), ("payment_item", 0)] * 2


def test_while_redis_is_out_every_worker_looks_for_itself() -> None:
    world, told = World(), Told()
    world.store.insert(ORDER, event_key=1)
    world.clock.advance(timedelta(seconds=5))
    worker = world.worker("a", told, leases=NoLeases())
    worker.turn()
    assert told.ages[0] == ("order_item", 5.0)
    worker.release()
    assert told.outages == []


def test_a_database_that_is_down_is_told_by_others_and_a_box_that_is_broken_does_not_stop_the_next() -> None:
    world, told = World(), Told()

    class Broken:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def oldest_pending(self, box: Box) -> Any:
            if box is ORDER:
                raise self.error

        def stranded_items(self, box: Box) -> int:
            return 0

    world.worker("a", told, store=Broken(StoreUnavailable("gone"))).turn()
    assert told.outages == []
    world.worker("a", told, store=Broken(ValueError("no such column"))).turn()
    assert told.outages == ["measuring order_item"]
    assert [name for name, _ in told.ages] == ["payment_item", "payment_item"]


MANY = [Box(name=f"box{number}_item", type=BoxType.OUTBOX, table=f"box{number}_items") for number in range(300)]


class Vanished:
    """A server whose machine has gone: every question waits for as long as a connection may take."""

    def __init__(self, clock: ManualClock, error: Exception, *, seconds: float) -> None:
        self._clock = clock
        self._error = error
        self._seconds = seconds
        self.asked = 0

    def __getattr__(self, _name: str) -> Any:
        def ask(*_args: object, **_options: object) -> Any:
            self.asked += 1
            self._clock.advance(timedelta(seconds=self._seconds))
            raise self._error

        return ask


def test_with_a_database_that_has_vanished_a_turn_over_many_boxes_does_not_count_as_hanging() -> None:
    world, told = World(), Told()
    gone = Vanished(world.clock, StoreUnavailable("timed out"), seconds=5.0)
    worker = world.worker("a", told, store=gone, boxes=MANY)
    began = world.clock.monotonic()
    assert worker.turn() == SOON
    assert world.clock.monotonic() - began < HOUSEKEEPING_LIMIT.total_seconds()


def test_with_a_redis_that_has_vanished_all_boxes_are_measured_and_it_is_asked_once_in_each_turn() -> None:
    world, told = World(), Told()
    gone = Vanished(world.clock, QueueUnavailable("timed out"), seconds=2.0)
    worker = world.worker("a", told, leases=gone, queue=gone, boxes=MANY)
    for turn in (1, 2):
        assert worker.turn() == INTERVAL
        assert gone.asked == turn
    assert [name for name, _ in told.ages] == [box.name for box in MANY] * 2
    assert told.queues == []


def test_a_slow_database_is_asked_about_the_other_boxes_in_the_next_turn() -> None:
    world, told = World(), Told()

    class Slow(MemoryStore):
        def oldest_pending(self, box: Box) -> Any:
            world.clock.advance(TURN_LIMIT)
            return super().oldest_pending(box)

    worker = world.worker("a", told, store=Slow(world.clock))
    worker.turn()
    worker.turn()
    assert [name for name, _ in told.ages] == ["order_item", "payment_item"]


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(minutes=-10)])
def test_how_long_an_item_has_waited_goes_by_the_clock_of_its_database(ahead: timedelta) -> None:
    world, told, database = World(), Told(), ManualClock()
    store = MemoryStore(database)
    store.insert(ORDER, event_key=1)
    world.clock.jump(ahead)
    for clock in (world.clock, database):
        clock.advance(timedelta(seconds=90))
    world.worker("a", told, store=store).turn()
    assert told.ages == [("order_item", 90.0), ("payment_item", 0.0)]
