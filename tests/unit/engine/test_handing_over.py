"""A bucket that has just been named goes to an idle thread of the same process, past the queue."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Self

import pytest

from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import Box, Storage
from boxengine.domain.job import ANY_ID, Job
from boxengine.engine.delivering.holds import gathering, taking
from boxengine.engine.delivering.holds.idle import IdleThreads, Turn
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.engine.delivering.holds.processor import ProcessLimits, Processor
from boxengine.engine.delivering.holds.sizing import BACKLOG
from boxengine.engine.delivering.holds.taking import FEW
from boxengine.engine.delivering.work import Errand, Report
from boxengine.engine.observation import NullObserver
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.errors import QueueUnavailable
from boxengine.ports import Hold
from tests.eventually import eventually
from tests.unit.engine.bench import make_box, usual

BOX = make_box(bucket_size=16)
FOREVER = 3600.0
HOLD = Hold(BOX, "token", (Job(1, 0, (1,)),), 1e9, frozenset({1}))


def jobs(*buckets: int) -> list[Job]:
    """A job for each bucket."""
    return [Job(bucket, 0, (1,)) for bucket in buckets]


# ── the threads that wait ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def idle() -> IdleThreads:
    return IdleThreads()


def waiting(idle: IdleThreads, pool: ThreadPoolExecutor, count: int = 1) -> None:
    """So many more threads wait."""
    before = idle._waiting
    for _ in range(count):
        pool.submit(idle.wait, FOREVER)
    assert eventually(lambda: idle._waiting == before + count)


def test_the_first_thread_waits_at_the_queue_and_the_next_takes_its_place(idle: IdleThreads) -> None:
    assert idle.wait(0) is Turn.AT_QUEUE
    assert idle.wait(0) is Turn.NONE
    idle.left_queue()
    assert idle.wait(0) is Turn.AT_QUEUE


def test_nobody_is_asked_to_stay_where_nobody_waits(idle: IdleThreads) -> None:
    assert not idle.reserve()
    idle.wait(0)
    assert not idle.reserve(), "who waits at the queue hears of nothing else"


def test_a_thread_gets_what_it_stayed_for(idle: IdleThreads) -> None:
    idle.wait(0)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(idle.wait, FOREVER)
        assert eventually(idle.reserve)
        idle.give(HOLD)
        assert got.result() is HOLD


def test_a_thread_that_was_asked_to_stay_outlasts_its_time(idle: IdleThreads) -> None:
    idle.wait(0)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(idle.wait, 0.05)
        assert eventually(idle.reserve)
        with suppress(TimeoutError):
            got.result(timeout=0.2)
        assert not got.done()
        idle.give(HOLD)
        assert got.result() is HOLD


def test_a_thread_whose_reservation_is_cancelled_takes_its_turn_at_the_queue(idle: IdleThreads) -> None:
    idle.wait(0)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(idle.wait, FOREVER)
        assert eventually(idle.reserve)
        idle.left_queue()
        assert not got.done(), "it stays while it is asked to"
        idle.cancel()
        assert got.result() is Turn.AT_QUEUE


def test_each_thread_is_reserved_one_thing(idle: IdleThreads) -> None:
    idle.wait(0)
    with ThreadPoolExecutor(2) as pool:
        waiting(idle, pool, 2)
        assert [idle.reserve() for _ in range(3)] == [True, True, False]
        idle.give(HOLD)
        idle.cancel()
        idle.left_queue()


def test_one_thread_looks_again_soon_and_the_others_wait_on(idle: IdleThreads) -> None:
    assert idle.can_watch(), "whoever takes its turn at the queue looks first"
    idle.wait(0)
    assert not idle.can_watch()
    with ThreadPoolExecutor(2) as pool:
        waiting(idle, pool, 2)
        idle.watch(0.01)
        assert eventually(lambda: idle._waiting == 1)
        idle.watch(0.01)
        assert eventually(lambda: idle._waiting == 0)


def test_a_thread_that_looks_again_soon_is_there_for_what_comes_until_then(idle: IdleThreads) -> None:
    idle.wait(0)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(idle.wait, FOREVER)
        assert eventually(lambda: idle._waiting == 1)
        idle.watch(FOREVER)
        assert eventually(lambda: idle._watching)
        assert idle.reserve()
        idle.give(HOLD)
        assert got.result() is HOLD
        assert not idle._watching


def test_no_hold_is_lost_and_no_reservation_is_left_over_however_threads_come_and_go(idle: IdleThreads) -> None:
    count, got = 300, list[Hold]()
    done = threading.Event()

    def live() -> None:
        while not done.is_set():
            match idle.wait(0.001):
                case Turn.AT_QUEUE:
                    idle.left_queue()
                case Hold() as hold:
                    got.append(hold)
                case _:
                    pass

    def give(each: int) -> int:
        while not idle.reserve():
            if each % 3 == 0 and idle.reserve():
                idle.cancel()
        idle.give(Hold(BOX, str(each), (), 0.0))
        return each

    with ThreadPoolExecutor(6) as threads, ThreadPoolExecutor(2) as givers:
        for _ in range(6):
            threads.submit(live)
        given = list(givers.map(give, range(count)))
        assert eventually(lambda: len(got) == count)
        done.set()
    assert sorted(int(hold.token) for hold in got) == given
    assert (idle._waiting, idle._reserved) == (0, 0)


# ── the processor ────────────────────────────────────────────────────────────────────────────────────


class Gate:
    """A work that waits until it may go on."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.begun: list[set[int]] = []
        self.open = threading.Event()

    def run(self, errand: Errand) -> Report:
        self.begun.append(set(errand.positions))
        assert self.open.wait(FOREVER)
        return Report(claimed=1, exhausted=frozenset(errand.positions))


class Deaf(MemoryJobQueue):
    """Nobody takes anything out of it, so that what is worked on was handed over."""

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        self.stopped.wait(FOREVER)
        return None

    stopped = threading.Event()


class Shop:
    """A processor with its threads over a queue from which nothing is taken."""

    def __init__(self, *, threads: int, boxes: Sequence[Box] = (BOX,)) -> None:
        clock = SystemClock()
        self.queue = Deaf(clock=clock)
        self.queue.stopped = threading.Event()
        self.works = {box.name: Gate(box) for box in boxes}
        self.work = self.works[boxes[0].name]
        length = usual(timedelta(seconds=60))
        self.processor = Processor(
            self.works,
            queue=self.queue,
            keeper=LeaseKeeper(
                self.queue,
                clock=clock,
                length=length,
                longest=timedelta(minutes=3),
                locks_decide=lambda box: box.storage is Storage.LOG,
            ),
            schedule=Schedule(boxes, partitions=1, clock=clock),
            pauses=PauseWatch(MemoryPauses(), boxes, clock=clock),
            outages=Outages(observer=NullObserver(), error_tracker=lambda *_, **__: None, clock=clock),
            observer=NullObserver(),
            clock=clock,
            limits=ProcessLimits(threads=threads, wait=timedelta(seconds=FOREVER)),
        )
        self._done = False
        self._threads = [threading.Thread(target=self._live) for _ in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        assert eventually(lambda: self.processor._taking._idle._waiting == len(self._threads) - 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._done = True
        self.processor.stop()
        self.queue.stopped.set()
        for work in self.works.values():
            work.open.set()
        for thread in self._threads:
            thread.join()

    def _live(self) -> None:
        while not self._done:
            self.processor.turn()


def test_a_few_jobs_go_to_an_idle_thread_and_leave_no_trace_in_the_queue() -> None:
    with Shop(threads=2) as shop:
        assert shop.processor.dispatch(BOX, jobs(1, 2)) == 2
        assert eventually(lambda: shop.work.begun == [{1, 2}])
        assert shop.queue.state(BOX).length == 0
        assert shop.processor.at_work.by_box() == {BOX.name: 1}
        shop.work.open.set()
        assert eventually(lambda: shop.queue.unattended(BOX, [1, 2]) == [1, 2])


def test_what_no_thread_is_idle_for_is_queued() -> None:
    with Shop(threads=2) as shop:
        assert shop.processor.dispatch(BOX, jobs(1)) == 1
        assert eventually(lambda: len(shop.work.begun) == 1)
        assert shop.processor.dispatch(BOX, jobs(1, 2)) == 1
        assert shop.queue.state(BOX).length == 1


class Brief:
    """``Work`` whose batches are quick; each waits to be let go."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.begun: list[set[int]] = []
        self.go_on = threading.Semaphore(0)
        self.open = threading.Event()
        self.has_more = False
        """Whether batches are large, and leave more behind."""

    def run(self, errand: Errand) -> Report:
        self.begun.append(set(errand.positions))
        while not self.go_on.acquire(timeout=0.01) and not self.open.is_set():
            pass
        if self.has_more and not self.open.is_set():
            return Report(claimed=BACKLOG, positions=errand.positions)
        return Report(claimed=1, exhausted=frozenset(errand.positions))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread keeps up however long a test lets it wait."""
    monkeypatch.setattr(gathering, "PATIENCE", FOREVER)


def quick(shop: Shop, box: Box = BOX) -> Brief:
    """Makes a thread of the shop work on bucket 0 of a box, quickly."""
    brief = Brief(box)
    shop.processor._works[box.name] = brief  # type: ignore[index]  # nobody else changes it
    shop.processor.dispatch(box, jobs(0))
    assert eventually(lambda: brief.begun == [{0}])
    brief.go_on.release()
    assert eventually(lambda: not shop.processor.at_work.by_box())
    return brief


def keeping_up(shop: Shop) -> Brief:
    """Makes a thread of the shop work on bucket 1 of a box whose last batch was quick."""
    brief = quick(shop)
    named(shop, 1)
    assert eventually(lambda: brief.begun == [{0}, {1}])
    return brief


def named(shop: Shop, bucket: int) -> None:
    """A writer names a bucket."""
    shop.processor.dispatch(BOX, jobs(bucket))
    shop.processor.hand_out()


@pytest.mark.usefixtures("patient")
def test_where_batches_are_quick_whatever_is_due_at_once_is_one_hold_however_many_buckets_it_has() -> None:
    with Shop(threads=3) as shop:
        brief = quick(shop)
        for some in (jobs(1, 2, 3), jobs(4, 5, 6), jobs(7)):
            assert shop.processor.dispatch(BOX, some) == len(some)
        assert brief.begun == [{0}]
        shop.processor.hand_out()
        assert eventually(lambda: brief.begun == [{0}, {1, 2, 3, 4, 5, 6, 7}])
        assert shop.queue.state(BOX).length == 0


@pytest.mark.usefixtures("patient")
def test_what_comes_while_buckets_are_handed_out_waits_for_the_thread_that_gets_them() -> None:
    with Shop(threads=3) as shop:
        brief = quick(shop)
        seize = shop.queue.seize

        def seize_beside_another(box: Box, some: Sequence[Job], *, ttl: timedelta) -> Hold | None:
            shop.queue.seize = seize  # type: ignore[method-assign]
            assert shop.processor.dispatch(box, jobs(2)) == 1
            shop.processor.hand_out()
            return seize(box, some, ttl=ttl)

        shop.queue.seize = seize_beside_another  # type: ignore[method-assign, assignment]
        shop.processor.dispatch(BOX, jobs(1))
        shop.processor.hand_out()
        assert eventually(lambda: brief.begun == [{0}, {1}])
        brief.go_on.release()
        assert eventually(lambda: brief.begun == [{0}, {1}, {2}])
        assert shop.queue.state(BOX).length == 0


def test_what_comes_while_buckets_are_handed_out_that_others_have_is_handed_out_too() -> None:
    with Shop(threads=3) as shop:
        brief = quick(shop)
        seize = shop.queue.seize

        def taken_by_another_worker(box: Box, _some: Sequence[Job], *, ttl: timedelta) -> Hold | None:
            shop.queue.seize = seize  # type: ignore[method-assign]
            assert ttl
            shop.processor.dispatch(box, jobs(2))
            shop.processor.hand_out()
            return None

        shop.queue.seize = taken_by_another_worker  # type: ignore[method-assign, assignment]
        shop.processor.dispatch(BOX, jobs(1))
        shop.processor.hand_out()
        assert eventually(lambda: brief.begun == [{0}, {2}])


def test_what_was_gathered_is_handed_out_again_after_an_outage() -> None:
    with Shop(threads=3) as shop:
        brief = quick(shop)
        seize = shop.queue.seize

        def away(*_args: object, **_options: object) -> Hold | None:
            raise QueueUnavailable("no answer")

        shop.queue.seize = away  # type: ignore[method-assign]
        shop.processor.dispatch(BOX, jobs(1))
        with pytest.raises(QueueUnavailable):
            shop.processor.hand_out()
        shop.queue.seize = seize  # type: ignore[method-assign]
        shop.processor.hand_out()
        assert eventually(lambda: brief.begun == [{0}, {1}])


def test_what_was_gathered_is_queued_where_the_free_threads_are_kept_for_the_other_boxes() -> None:
    other = make_box(name="other_outbox_item")
    with Shop(threads=4, boxes=(BOX, other)) as shop:
        quick(shop)
        for bucket in (1, 2):
            hold = shop.queue.seize(BOX, jobs(bucket), ttl=timedelta(seconds=60))
            assert hold is not None
            shop.processor.at_work.begin(hold)
        assert shop.processor.dispatch(BOX, jobs(3)) == 1
        shop.processor.hand_out()
        assert shop.queue.state(BOX).length == 1


def test_what_was_gathered_when_the_worker_stops_is_queued_for_others() -> None:
    with Shop(threads=3) as shop:
        quick(shop)
        shop.processor.dispatch(BOX, jobs(1))
        shop.processor.stop()
        shop.processor.hand_out()
        assert eventually(lambda: shop.queue.state(BOX).length == 1)


@pytest.mark.usefixtures("patient")
def test_what_comes_while_a_thread_keeps_up_is_its_next_hold_past_the_queue() -> None:
    with Shop(threads=3) as shop:
        brief = keeping_up(shop)
        for bucket in (2, 3, 4):
            named(shop, bucket)
        assert (brief.begun, shop.queue.state(BOX).length) == ([{0}, {1}], 0)
        brief.go_on.release()
        assert eventually(lambda: brief.begun == [{0}, {1}, {2, 3, 4}])
        assert shop.queue.state(BOX).length == 0


def test_what_was_gathered_goes_to_another_thread_if_the_transport_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gathering, taking):
        monkeypatch.setattr(module, "PATIENCE", 0.5)
    with Shop(threads=3) as shop:
        brief = keeping_up(shop)
        named(shop, 2)
        assert eventually(lambda: brief.begun == [{0}, {1}, {2}])


@pytest.mark.usefixtures("patient")
def test_where_every_other_thread_waits_at_the_queue_it_gets_what_comes() -> None:
    with Shop(threads=2) as shop:
        keeping_up(shop)
        assert shop.processor.dispatch(BOX, jobs(2)) == 1
        assert shop.queue.state(BOX).length == 1


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("buckets", "queued"), [(range(2, 2 + FEW), 0), (range(2, 3 + FEW), FEW + 1)])
def test_what_was_gathered_behind_a_large_batch_goes_to_other_threads(buckets: range, queued: int) -> None:
    """A few buckets go to one that is idle, more of them into the queue for all."""
    with Shop(threads=3) as shop:
        brief = keeping_up(shop)
        for bucket in buckets:
            named(shop, bucket)
        brief.has_more = True
        brief.go_on.release()
        expected = [{1}] if queued else [{1}, set(buckets)]
        assert eventually(lambda: sorted(brief.begun[2:], key=min) == expected)
        assert shop.queue.state(BOX).length == queued


@pytest.mark.usefixtures("patient")
def test_a_bucket_with_new_rows_joins_what_was_gathered() -> None:
    with Shop(threads=3) as shop:
        brief = keeping_up(shop)
        assert shop.processor.want(BOX.name, {1, 2}) == {2}
        named(shop, 2)
        brief.go_on.release()
        assert eventually(lambda: brief.begun == [{0}, {1}, {1, 2}])


@pytest.mark.usefixtures("patient")
def test_what_was_gathered_is_queued_for_others_when_the_worker_stops() -> None:
    with Shop(threads=3) as shop:
        brief = keeping_up(shop)
        named(shop, 2)
        shop.processor.stop()
        brief.open.set()
        assert eventually(lambda: shop.queue.state(BOX).length == 1)


@pytest.mark.usefixtures("patient")
def test_what_was_gathered_of_a_box_that_is_paused_waits_in_the_queue() -> None:
    with Shop(threads=3) as shop:
        brief = keeping_up(shop)
        named(shop, 2)
        shop.processor._taking._pauses = Paused()  # type: ignore[assignment]
        brief.go_on.release()
        assert eventually(lambda: shop.queue.state(BOX).length == 1)
        brief.open.set()


def test_what_was_gathered_does_not_take_the_last_thread_from_the_other_boxes() -> None:
    other = make_box(name="other_outbox_item")
    with Shop(threads=3, boxes=(BOX, other)) as shop:
        for bucket in (1, 2):
            hold = shop.queue.seize(BOX, jobs(bucket), ttl=timedelta(seconds=60))
            assert hold is not None
            shop.processor.at_work.begin(hold)
        shop.processor._taking.gathering.put_back(BOX, jobs(3))
        assert shop.processor._taking._take_gathered() is None
        assert shop.queue.state(BOX).length == 1


class Paused:
    """Every box is paused."""

    def paused(self, _box: Box) -> bool:
        return True

    def running(self, _boxes: Sequence[Box]) -> Sequence[Box]:
        return ()


def test_many_jobs_are_queued_for_all_threads_to_share() -> None:
    with Shop(threads=2) as shop:
        assert shop.processor.dispatch(BOX, jobs(*range(FEW + 1))) == FEW + 1
        assert shop.queue.state(BOX).length == FEW + 1


def test_buckets_in_work_elsewhere_are_left_there_and_the_thread_waits_on() -> None:
    with Shop(threads=2) as shop:
        other = shop.queue.seize(BOX, jobs(1), ttl=timedelta(seconds=60))
        assert other is not None
        assert shop.processor.dispatch(BOX, jobs(1)) == 0
        assert shop.queue.release(other, {1}) == {1}
        assert shop.processor.dispatch(BOX, jobs(2)) == 1
        assert eventually(lambda: shop.work.begun == [{2}])


def test_an_outage_is_told_to_whoever_queues_and_the_thread_waits_on() -> None:
    with Shop(threads=2) as shop:
        seize = shop.queue.seize

        def away(*_args: object, **_options: object) -> Hold | None:
            raise QueueUnavailable("no answer")

        shop.queue.seize = away  # type: ignore[method-assign]
        with pytest.raises(QueueUnavailable):
            shop.processor.dispatch(BOX, jobs(1))
        shop.queue.seize = seize  # type: ignore[method-assign]
        assert shop.processor.dispatch(BOX, jobs(1)) == 1
        assert eventually(lambda: shop.work.begun == [{1}])


def test_the_last_thread_is_kept_for_the_other_boxes_though_one_at_the_queue_takes_this_box_too() -> None:
    other = make_box(name="other_outbox_item")
    with Shop(threads=4, boxes=(BOX, other)) as shop:
        for bucket in (1, 2):
            assert shop.processor.dispatch(BOX, jobs(bucket)) == 1
        assert eventually(lambda: len(shop.work.begun) == 2)
        # A third thread waits at the queue and may take this box; the fourth is for the others.
        assert shop.processor.dispatch(BOX, jobs(3)) == 1
        assert shop.queue.state(BOX).length == 1
        assert shop.processor.dispatch(other, jobs(1)) == 1
        assert eventually(lambda: shop.works[other.name].begun == [{1}])


def test_a_second_caller_queues_while_the_first_hands_over() -> None:
    with Shop(threads=3) as shop:
        seize = shop.queue.seize

        def seize_beside_another(box: Box, some: Sequence[Job], *, ttl: timedelta) -> Hold | None:
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(shop.processor.dispatch, box, jobs(2)).result() == 1
            return seize(box, some, ttl=ttl)

        shop.queue.seize = seize_beside_another  # type: ignore[method-assign, assignment]
        assert shop.processor.dispatch(BOX, jobs(1)) == 1
        assert shop.queue.state(BOX).length == 1
        assert eventually(lambda: shop.work.begun == [{1}])


# ── past the coordinator ─────────────────────────────────────────────────────────────────────────────

LOG = replace(BOX, storage=Storage.LOG)


class Asked:
    """What the coordinator is asked for, in place of its ``seize``."""

    def __init__(self, shop: Shop) -> None:
        self.buckets: list[set[int]] = []
        self._seize = shop.queue.seize
        shop.queue.seize = self  # type: ignore[method-assign, assignment]

    def __call__(self, box: Box, some: Sequence[Job], *, ttl: timedelta, left: bool = False) -> Hold | None:
        self.buckets.append({job.bucket for job in some})
        return self._seize(box, some, ttl=ttl, left=left)


def known(shop: Shop) -> None:
    """The worker is no longer young, and has just looked which buckets are in work."""
    vacancies = shop.processor._taking._keeper.vacancies
    vacancies._born = -FOREVER
    vacancies.take(LOG, jobs(0))
    vacancies.look()


def written(shop: Shop, *buckets: int) -> None:
    """The poller queues what writers have named."""
    shop.processor.dispatch(LOG, [Job(bucket, 0, ANY_ID, named=True) for bucket in buckets])
    shop.processor.hand_out()


@pytest.fixture
def log_shop() -> Iterator[Shop]:
    with Shop(threads=3, boxes=(LOG,)) as shop:
        yield shop


def test_a_bucket_of_a_quick_log_that_a_writer_has_named_is_begun_before_the_coordinator_knows(log_shop: Shop) -> None:
    brief = quick(log_shop, LOG)
    known(log_shop)
    asked = Asked(log_shop)
    written(log_shop, 1)
    assert eventually(lambda: brief.begun == [{0}, {1}])
    assert log_shop.queue.in_work(LOG) == frozenset()
    brief.go_on.release()
    assert eventually(lambda: not log_shop.processor.at_work.by_box())
    assert asked.buckets == []


def test_the_second_batch_of_a_bucket_is_under_a_lease(log_shop: Shop) -> None:
    brief = quick(log_shop, LOG)
    known(log_shop)
    brief.has_more = True
    written(log_shop, 1)
    assert eventually(lambda: brief.begun == [{0}, {1}])
    brief.go_on.release()
    assert eventually(lambda: brief.begun == [{0}, {1}, {1}])
    assert log_shop.queue.in_work(LOG) == {1}
    brief.open.set()
    assert eventually(lambda: log_shop.queue.in_work(LOG) == frozenset())


@pytest.mark.usefixtures("patient")
def test_the_coordinator_is_asked_where_another_thread_is_at_work_on_the_box(log_shop: Shop) -> None:
    quick(log_shop, LOG)
    known(log_shop)
    asked = Asked(log_shop)
    hold = log_shop.queue.seize(LOG, jobs(7), ttl=timedelta(seconds=60))
    assert hold is not None
    log_shop.processor.at_work.begin(hold)
    written(log_shop, 1)
    assert eventually(lambda: asked.buckets == [{7}, {1}])


def test_the_coordinator_is_asked_for_what_a_look_has_found(log_shop: Shop) -> None:
    quick(log_shop, LOG)
    known(log_shop)
    asked = Asked(log_shop)
    log_shop.processor.dispatch(LOG, jobs(1))
    log_shop.processor.hand_out()
    assert eventually(lambda: asked.buckets == [{1}])


def test_the_coordinator_is_asked_where_the_last_batch_was_slow(log_shop: Shop) -> None:
    known(log_shop)
    asked = Asked(log_shop)
    written(log_shop, 1)
    assert eventually(lambda: asked.buckets == [{1}])


def test_a_bucket_is_begun_like_this_as_often_as_all_goes_well(log_shop: Shop) -> None:
    brief = quick(log_shop, LOG)
    known(log_shop)
    asked = Asked(log_shop)
    brief.open.set()
    for number in range(3):
        written(log_shop, 1)
        assert eventually(lambda: len(brief.begun) == 2 + number and not log_shop.processor.at_work.by_box())  # noqa: B023
    assert asked.buckets == []


class Broken:
    """``Work`` that fails."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.begun = 0
        self.open = threading.Event()

    def run(self, _errand: Errand) -> Report:
        self.begun += 1
        raise RuntimeError("the database is away")


def test_a_bucket_whose_batch_failed_has_its_pause_though_it_is_named_again(log_shop: Shop) -> None:
    quick(log_shop, LOG)
    known(log_shop)
    broken = Broken(LOG)
    log_shop.processor._works[LOG.name] = broken  # type: ignore[index]  # nobody else changes it
    for _ in range(2):
        written(log_shop, 1)
        assert eventually(lambda: not log_shop.processor.at_work.by_box())
        log_shop.processor._taking._keeper.vacancies.look()
    assert broken.begun == 1


@pytest.mark.usefixtures("patient")
def test_a_bucket_that_a_thread_has_in_hand_is_read_once_more_whoever_finds_it(log_shop: Shop) -> None:
    brief = quick(log_shop, LOG)
    known(log_shop)
    written(log_shop, 1)
    assert eventually(lambda: brief.begun == [{0}, {1}])
    assert log_shop.processor.dispatch(LOG, jobs(1)) == 0
    brief.go_on.release()
    assert eventually(lambda: brief.begun == [{0}, {1}, {1}])
    assert log_shop.queue.state(LOG).length == 0


def test_what_was_gathered_of_a_bucket_in_hand_goes_to_no_other_thread_though_the_first_one_takes_long(
    log_shop: Shop,
) -> None:
    brief = quick(log_shop, LOG)
    known(log_shop)
    written(log_shop, 1)
    assert eventually(lambda: brief.begun == [{0}, {1}])
    gathering_of_shop = log_shop.processor._taking.gathering
    gathering_of_shop.put_back(LOG, jobs(1))
    assert eventually(gathering_of_shop.is_due)
    log_shop.processor.hand_out()
    assert log_shop.queue.in_work(LOG) == frozenset()
    brief.go_on.release()
    assert eventually(lambda: brief.begun == [{0}, {1}, {1}])


def test_a_bucket_for_which_no_lease_could_be_had_is_not_leased_after_the_outage() -> None:
    shop = Shop(threads=1, boxes=(LOG,))
    brief = Brief(LOG)
    brief.has_more = True
    brief.go_on.release()
    shop.processor._works[LOG.name] = brief  # type: ignore[index]  # nobody else changes it
    seize = shop.queue.seize

    def away(*_args: object, **_options: object) -> Hold | None:
        raise QueueUnavailable("no answer")

    shop.queue.seize = away  # type: ignore[method-assign]
    hold = Hold(LOG, "", tuple(jobs(1)), time.monotonic() + FOREVER, frozenset({1}))
    shop.processor._taking._begin(hold)
    with pytest.raises(QueueUnavailable):
        shop.processor._work(hold)
    shop.queue.seize = seize  # type: ignore[method-assign]
    shop.queue.stopped.set()
    shop.processor.turn()
    assert shop.queue.unattended(LOG, [1]) == [1]
