"""How a processor's threads share the buckets of a backlog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.box import Box, Retention, Storage
from boxengine.domain.job import Job
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.delivering.holds.sizing import (
    FEWEST,
    LARGE,
    LARGE_UNMARKED,
    LIGHT,
    QUICK,
    REGAINED,
    ROWS,
    WORTH_SHARING,
    times_large,
)
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.tasks import Task
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.errors import (
    NotPermitted,
    QueueUnavailable,
    StoreConflict,
    StoreUnavailable,
    TableMissing,
    TransactionLost,
    TransactionUndone,
    Unavailable,
)
from boxengine.ports.events import Event, OutageEnded
from tests.eventually import eventually
from tests.unit.engine.bench import make_box, usual

BUCKETS = frozenset(range(8))
TTL = timedelta(seconds=4)


class Backlog:
    """A work whose buckets give so many rows per batch; from the last batch on each is empty after it."""

    def __init__(
        self,
        box: Box,
        *,
        batches: int,
        rows: int,
        during: Callable[[int], None] = lambda _: None,
        more: Callable[[int], Mapping[str, Any]] = lambda _: {},
    ) -> None:
        """Args:
        more: what else the report of the first, second and so on batch says.
        """
        self.box = box
        self.given: list[set[int]] = []
        self.asked: list[int] = []
        """Rows of each batch, in batches of the usual size."""
        self.sizes: list[int] = []
        """The same in rows."""
        self._batches = batches
        self._rows = rows
        self._during = during
        self._more = more

    def run(self, errand: Errand) -> Report:
        self.given.append(set(errand.positions))
        self.asked.append(errand.rows // ROWS)
        self.sizes.append(errand.rows)
        self._during(len(self.given))
        last = len(self.given) >= self._batches
        exhausted = frozenset(errand.positions) if last else frozenset()
        said: dict[str, Any] = {"exhausted": exhausted, **self._more(len(self.given))}
        return Report(claimed=self._rows, positions=dict(errand.positions), **said)


class Shop:
    """One processor over a memory queue that holds a job for each bucket."""

    def __init__(self, *, threads: int, longest: int = 100, wait: timedelta = timedelta(0), **backlog: Any) -> None:
        """Args:
        longest: a queue with more jobs is so long that polls wait.
        wait: for a job, in real time.
        """
        self.clock = ManualClock()
        self.box = make_box(bucket_size=len(BUCKETS))
        self.queue = MemoryJobQueue(clock=self.clock, longest=longest)
        self.backlog = Backlog(self.box, **backlog)
        self.pauses = MemoryPauses()
        self.recovered: list[str] = []
        """What works again."""
        self.watch = PauseWatch(self.pauses, [self.box], clock=self.clock)
        self.schedule = Schedule([self.box], partitions=1, clock=self.clock)
        self.processor = Processor(
            {self.box.name: self.backlog},
            queue=self.queue,
            keeper=LeaseKeeper(self.queue, clock=self.clock, length=usual(TTL), longest=timedelta(minutes=3)),
            schedule=self.schedule,
            pauses=self.watch,
            outages=Outages(observer=self, error_tracker=lambda *_, **__: None, clock=self.clock),
            observer=NullObserver(),
            clock=self.clock,
            limits=ProcessLimits(threads=threads, wait=wait),
        )
        self.queue.push(self.box, [Job(bucket, 0, (1,)) for bucket in sorted(BUCKETS)])

    def see(self, event: Event) -> None:
        if isinstance(event, OutageEnded):
            self.recovered.append(event.what)

    def offer(self, buckets: Iterable[int]) -> set[int]:
        """The buckets that anybody gets, once jobs for these are pushed."""
        self.queue.push(self.box, [Job(bucket, 0, (1,)) for bucket in sorted(buckets)])
        return self.take_rest()

    def tasks(self) -> list[Task]:
        """What the poller has to do now."""
        return list(iter(lambda: self.schedule.take(wait=0), None))

    def take_rest(self) -> set[int]:
        """The buckets that anybody may take now."""
        hold = self.queue.take([self.box], wait=timedelta(0), ttl=TTL, share=1)
        return set() if hold is None else set(hold.buckets)


def test_a_thread_with_a_backlog_leaves_half_of_its_buckets_to_one_that_has_none() -> None:
    shop = Shop(threads=2, batches=2, rows=WORTH_SHARING)
    shop.processor.turn()
    first, second = shop.backlog.given
    assert (len(first), len(second)) == (4, 2)
    assert second < first
    # What was not taken at first, and what was given back: free, each once.
    assert shop.take_rest() == BUCKETS - second


def test_a_thread_keeps_its_buckets_while_a_long_queue_has_enough_for_the_others() -> None:
    shop = Shop(threads=2, longest=3, batches=2, rows=WORTH_SHARING)
    shop.processor.turn()
    first, second = shop.backlog.given
    assert second == first, "four others are in the queue"
    assert shop.take_rest() == BUCKETS - first


@pytest.mark.parametrize(("longest", "queued", "looks"), [(3, 4, ["Look"]), (4, 8, [])])
def test_buckets_that_a_long_queue_does_not_take_back_after_a_turn_are_looked_for_at_once(
    longest: int, queued: int, looks: list[str]
) -> None:
    def take_long(_batch: int) -> None:
        shop.clock.advance(timedelta(seconds=2))

    shop = Shop(threads=2, longest=longest, batches=2, rows=WORTH_SHARING, during=take_long)
    shop.tasks()  # the first check
    shop.processor.turn()
    assert [type(task).__name__ for task in shop.tasks()] == looks
    assert len(shop.take_rest()) == queued


def test_buckets_of_a_worker_that_stops_are_queued_however_long_the_queue_is() -> None:
    shop: Shop

    def stop(_batch: int) -> None:
        shop.processor.stop()

    shop = Shop(threads=2, longest=3, batches=3, rows=1, during=stop)
    shop.processor.turn()
    assert len(shop.backlog.given) == 1
    assert shop.take_rest() == BUCKETS


def test_buckets_of_a_box_that_is_paused_wait_in_the_queue_however_long_it_is() -> None:
    within_a_turn = timedelta(seconds=0.5)

    def pause(_batch: int) -> None:
        shop.pauses.set(shop.box, polling_enabled=False)
        shop.clock.advance(within_a_turn)

    shop = Shop(threads=2, longest=3, batches=3, rows=1, during=pause)
    assert not shop.watch.paused(shop.box)
    shop.clock.advance(timedelta(seconds=TIMING.pause_heard) - within_a_turn)
    shop.processor.turn()
    assert len(shop.backlog.given) == 1
    assert shop.take_rest() == BUCKETS


def test_a_thread_without_work_ends_the_wait_for_locked_rows_that_nobody_meets_any_more() -> None:
    shop = Shop(threads=1, batches=2, rows=1, more=lambda _batch: {"locked": frozenset({8})})
    shop.processor.turn()
    for seconds, recovered in ((59, []), (2, [f"claiming locked rows of {shop.box.name}"])):
        shop.clock.advance(timedelta(seconds=seconds))
        shop.processor.turn()
        assert shop.recovered == recovered


def test_a_thread_that_waits_behind_another_does_not_end_an_outage_of_the_queue() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise QueueUnavailable("away")

    def at_queue(*_: Any, **__: Any) -> Any:
        with pytest.raises(QueueUnavailable):
            shop.processor.turn()  # of the thread behind
        refuse()

    shop = Shop(threads=2, batches=1, rows=1)
    take, ping = shop.queue.take, shop.queue.ping
    shop.queue.ping = refuse  # type: ignore[method-assign]
    for taken in (refuse, at_queue):
        shop.queue.take = taken  # type: ignore[method-assign]
        with pytest.raises(QueueUnavailable):
            shop.processor.turn()
    shop.queue.take, shop.queue.ping = take, ping  # type: ignore[method-assign]
    shop.processor.turn()
    assert shop.backlog.given


def test_a_box_whose_outcomes_are_refused_does_not_work_again_because_its_items_rest() -> None:
    def during(number: int) -> None:
        if number == 1:
            raise StoreUnavailable("no space left on device")

    def more(number: int) -> Mapping[str, Any]:
        return {"progressed": False, "at_rest": True} if number == 2 else {}

    shop = Shop(threads=1, batches=3, rows=1, during=during, more=more)
    for recovered in ([], [], [f"box {shop.box.name}"]):
        shop.processor.turn()
        assert shop.recovered == recovered
        shop.clock.advance(2 * TTL)
        shop.queue.push(shop.box, [Job(bucket, 0, (1,)) for bucket in sorted(BUCKETS)])


@pytest.mark.parametrize(
    ("error", "failures", "pause"),
    [
        (StoreUnavailable("the server closed the connection"), 1, TIMING.failed),
        (StoreUnavailable("the server closed the connection"), 10, TIMING.lease),
        (TransactionLost("the connection of the handlers' session is lost"), 1, TIMING.failed),
        (TransactionUndone("a deadlock"), 1, TIMING.failed),
        (StoreConflict("a lock did not come free"), 1, TIMING.failed),
        (TableMissing("the server answers that there is no such table"), 1, TIMING.lease),
        (NotPermitted("the server answers that the account may not"), 1, TIMING.lease),
    ],
    ids=["away", "away for long", "away from handlers", "deadlock", "conflict", "no table", "no privilege"],
)
def test_buckets_are_left_alone_for_a_moment_after_a_batch_that_failed_of_what_may_be_over_soon(
    error: StoreUnavailable, failures: int, pause: float
) -> None:
    def during(number: int) -> None:
        if number <= failures:
            raise error

    shop = Shop(threads=1, batches=1, rows=1, during=during)
    jobs = [Job(bucket, 0, (1,)) for bucket in sorted(BUCKETS)]
    for _ in range(failures - 1):
        shop.processor.turn()
        shop.clock.advance(TTL)
        shop.queue.push(shop.box, jobs)
    shop.processor.turn()
    shop.clock.advance(timedelta(seconds=pause - 0.01))
    assert shop.queue.seize(shop.box, jobs, ttl=TTL) is None
    shop.clock.advance(timedelta(seconds=0.02))
    hold = shop.queue.seize(shop.box, jobs, ttl=TTL)
    assert hold is not None
    assert hold.buckets == BUCKETS
    assert hold.orphaned == frozenset(), "a worker is taken for dead"


def test_the_last_bucket_is_kept() -> None:
    shop = Shop(threads=2, batches=5, rows=WORTH_SHARING)
    shop.processor.turn()
    assert [len(buckets) for buckets in shop.backlog.given] == [4, 2, 1, 1, 1]


def test_a_thread_alone_shares_with_nobody() -> None:
    shop = Shop(threads=1, batches=1, rows=WORTH_SHARING)
    shop.processor.turn()
    assert shop.backlog.given == [BUCKETS]


def test_where_all_buckets_have_much_each_batch_takes_fewer_of_them_in_turn() -> None:
    shop = Shop(threads=1, batches=4, rows=WORTH_SHARING)
    shop.processor.turn()
    some, others = set(range(FEWEST)), set(range(FEWEST, 8))
    assert shop.backlog.given == [BUCKETS, some, others, some, others]


def test_a_batch_that_memory_did_not_suffice_for_is_followed_by_smaller_ones_that_grow_again() -> None:
    def during(number: int) -> None:
        if number == 1:
            raise MemoryError

    shop = Shop(threads=1, batches=4, rows=1, during=during)
    shop.processor.turn()
    shop.clock.advance(2 * TTL)
    shop.queue.push(shop.box, [Job(bucket, 0, (1,)) for bucket in sorted(BUCKETS)])
    shop.processor.turn()
    assert shop.backlog.sizes == [ROWS, ROWS // 2, ROWS // 2 + REGAINED, ROWS // 2 + 2 * REGAINED]


def test_where_buckets_have_little_every_batch_takes_all_of_them() -> None:
    shop = Shop(threads=1, batches=3, rows=WORTH_SHARING - 1)
    shop.processor.turn()
    assert shop.backlog.given == [BUCKETS] * 3


def test_buckets_that_give_few_rows_are_not_worth_sharing() -> None:
    shop = Shop(threads=2, batches=3, rows=WORTH_SHARING - 1)
    shop.processor.turn()
    assert [len(buckets) for buckets in shop.backlog.given] == [4, 4, 4]


def test_while_every_thread_is_at_work_nothing_is_shared() -> None:
    shop: Shop

    def other_thread_works(batch: int) -> None:
        if batch == 1:
            shop.processor.turn()

    shop = Shop(threads=2, batches=4, rows=WORTH_SHARING, during=other_thread_works)
    shop.processor.turn()
    # The inner turn has its share of the other four, and keeps it: both threads are busy during all of its batches.
    assert [len(buckets) for buckets in shop.backlog.given[1:]] == [2, 2, 2]


def test_buckets_in_which_nothing_moves_are_left_alone_and_the_others_go_on() -> None:
    shop = Shop(
        threads=1, batches=5, rows=WORTH_SHARING, more=lambda batch: {"progressed": False} if batch == 2 else {}
    )
    shop.processor.turn()
    _, stuck, *rest = shop.backlog.given
    assert stuck == set(range(FEWEST))
    assert rest == [BUCKETS - stuck] * 3
    # Nobody else meets them either, until their leases have run out.
    assert shop.offer(stuck) == set()
    shop.clock.advance(TTL)
    assert shop.offer(stuck) == stuck


def test_where_the_receiver_is_away_no_other_bucket_is_tried_against_it() -> None:
    away = {"progressed": False, "unreachable": {"receiver": Unavailable("gone")}}
    shop = Shop(threads=1, batches=5, rows=WORTH_SHARING, more=lambda batch: away if batch == 2 else {})
    shop.processor.turn()
    assert len(shop.backlog.given) == 2
    assert shop.offer(BUCKETS) == set()


def test_batches_are_large_while_those_before_went_through_quickly_and_had_light_payloads() -> None:
    shop: Shop

    def take_time(batch: int) -> None:
        if batch == 3:
            shop.clock.advance(timedelta(seconds=QUICK + 0.01))

    heavy = {"weight": LIGHT + 1}
    shop = Shop(
        threads=1, batches=6, rows=WORTH_SHARING, during=take_time, more=lambda batch: heavy if batch == 5 else {}
    )
    shop.processor.turn()
    assert shop.backlog.asked == [1, LARGE, LARGE, 1, LARGE, 1, LARGE]


@pytest.mark.parametrize(
    ("options", "times"),
    [
        ({}, LARGE),
        ({"retention": Retention(delivered=timedelta(0))}, LARGE_UNMARKED),
        ({"storage": Storage.LOG}, LARGE_UNMARKED),
    ],
)
def test_batches_of_boxes_that_mark_no_row_are_larger_still(options: dict[str, Any], times: int) -> None:
    assert times_large(make_box(**options)) == times


def test_the_first_batch_of_the_next_hold_is_large_if_the_last_one_was_quick() -> None:
    shop = Shop(threads=1, batches=2, rows=WORTH_SHARING)
    shop.processor.turn()
    before = len(shop.backlog.asked)
    shop.queue.push(shop.box, [Job(bucket, 0, (1,)) for bucket in sorted(BUCKETS)])
    shop.processor.turn()
    assert (shop.backlog.asked[0], shop.backlog.asked[before]) == (1, LARGE)


def test_that_a_few_rows_were_quick_makes_no_batch_large() -> None:
    shop = Shop(threads=1, batches=3, rows=WORTH_SHARING - 1)
    shop.processor.turn()
    assert shop.backlog.asked == [1, 1, 1]


def test_no_thread_that_waits_for_work_delays_a_stop() -> None:
    shop = Shop(threads=3, wait=timedelta(minutes=1), batches=1, rows=1)
    while shop.queue.state(shop.box).length:
        shop.processor.turn()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(shop.processor.turn) for _ in range(3)]
        eventually(lambda: shop.processor._taking._idle._waiting == 2)
        shop.processor.stop()
        for each in waiting:
            each.result(timeout=30)
