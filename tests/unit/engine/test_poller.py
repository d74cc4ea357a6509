"""When the poller looks at a box: often enough for what is due, hardly ever where nothing happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.adapters.memory.pauses import MemoryPauses
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.adapters.memory.wakeups import MemoryWakeups
from boxengine.domain.box import Backoff, Box, StrictOrder
from boxengine.domain.job import Job
from boxengine.engine.observation import NullTracer
from boxengine.engine.polling.checks import Checks
from boxengine.engine.polling.listener import Listener
from boxengine.engine.polling.looks import PollLimits
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.poller import Poller
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.tactics import TACTICS
from boxengine.engine.polling.throttlers import SHORTEST_DELAY, Pace
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable
from boxengine.ports import Duty, LeaseName, Signal
from tests.unit.engine.bench import Bench

PACE = Pace()
AT_ONCE = PollLimits(take_wait=0.0)
STEP = 0.01
"""Seconds between two looks at the agenda."""


class Watch(Bench):
    """A poller of one box, its commits announced as by a database, run step by step."""

    def __init__(
        self,
        tactic: str = "default",
        *,
        limits: PollLimits = AT_ONCE,
        pace: Pace = PACE,
        middlewares: Sequence[Any] = (),
        **policy: Any,
    ) -> None:
        self.steps: list[str] = []
        super().__init__(fault=self.steps.append, **policy)
        self.queue = MemoryJobQueue(clock=self.clock)
        self.schedule = Schedule([self.box], partitions=2, clock=self.clock)
        self.leases = MemoryLeases(clock=self.clock)
        self.pauses = MemoryPauses()
        self.wakeups = MemoryWakeups()
        outages = Outages(observer=self.observer, error_tracker=lambda _error, /, **_context: None, clock=self.clock)
        pauses, rules = PauseWatch(self.pauses, [self.box], clock=self.clock), TACTICS[tactic](pace)
        checks = Checks(
            self.schedule,
            store=self.store,
            queue=self.queue,
            pauses=pauses,
            wakeups=self.wakeups,
            tactic=rules,
            clock=self.clock,
        )
        self.poller = Poller(
            self.schedule,
            checks=checks,
            store=self.store,
            queue=self.queue,
            leases=self.leases,
            pauses=pauses,
            tactic=rules,
            middlewares=middlewares,
            outages=outages,
            observer=self.observer,
            tracer=NullTracer(),
            clock=self.clock,
            queue_jobs=self.push,
            token="poller",
            limits=limits,
        )

    def push(self, box: Box, jobs: Sequence[Job]) -> int:
        """Looked up at each call, so that a test may put another in its place."""
        return self.queue.push(box, jobs)

    def commit(self, **columns: object) -> None:
        """A row written through the library: the poller hears of it."""
        self.insert(1, **columns)
        self.wakeups.notify([Signal(self.box.name, 1, due="available_at" not in columns)])
        Listener(self.wakeups, self.schedule, queue_announced=self.poller.queue_announced).turn()

    def go_on(self, seconds: float) -> None:
        """Lets so much time pass, the poller taking its turns."""
        for _ in range(round(seconds / STEP)):
            self.clock.advance(timedelta(seconds=STEP))
            for _ in range(4):
                self.poller.turn()

    def moment(self, seconds: float) -> datetime:
        """So many seconds from now."""
        return self.clock.now() + timedelta(seconds=seconds)

    @property
    def queued(self) -> int:
        return self.queue.state(self.box).length

    @property
    def looks(self) -> int:
        """Statements so far."""
        return self.steps.count("poll")


@pytest.fixture
def watch() -> Watch:
    watch = Watch()
    watch.go_on(30)
    return watch


def test_a_box_in_which_nothing_happens_is_looked_at_every_five_seconds(watch: Watch) -> None:
    before = watch.looks
    watch.go_on(10 * TIMING.longest_idle)
    assert watch.looks - before <= 11


def test_a_delayed_row_is_queued_as_soon_as_it_is_due_and_costs_hardly_a_look(watch: Watch) -> None:
    before = watch.looks
    watch.commit(available_at=watch.moment(2.3))
    watch.go_on(2.3 - STEP)
    assert watch.queued == 0
    watch.go_on(3 * STEP)
    assert watch.queued == 1
    assert watch.looks - before <= 6


def test_a_delayed_row_of_which_nobody_told_is_queued_on_time_if_a_check_saw_it(watch: Watch) -> None:
    watch.insert(1, available_at=watch.moment(TIMING.longest_idle + 2.3))
    watch.go_on(TIMING.longest_idle + 2.3 - STEP)
    assert watch.queued == 0
    watch.go_on(3 * STEP)
    assert watch.queued == 1


def test_a_row_due_in_a_moment_waits_hardly_longer(watch: Watch) -> None:
    watch.commit(available_at=watch.moment(0.05))
    watch.go_on(0.05 - STEP)
    assert watch.queued == 0
    watch.go_on(TIMING.longest_gap)
    assert watch.queued == 1


def test_a_row_delayed_for_long_is_no_reason_to_look_more_often(watch: Watch) -> None:
    watch.commit(available_at=watch.moment(3600))
    watch.go_on(1)
    before = watch.looks
    watch.go_on(10 * TIMING.longest_idle)
    assert watch.looks - before <= 11


def test_rows_that_come_due_one_after_the_other_are_taken_together(watch: Watch) -> None:
    for number in range(1000):
        watch.insert(1, available_at=watch.moment(2 + number / 1000))
    watch.go_on(2)
    before = watch.looks
    watch.go_on(1)
    assert watch.queued == 1
    assert watch.looks - before <= 2 * (1 / TIMING.shortest_look) + 2


def test_a_commit_of_many_rows_that_are_all_taken_already_makes_the_box_checked_now_and_then(watch: Watch) -> None:
    before = watch.looks
    for _ in range(100):
        watch.schedule.wake(watch.box.name, [1])  # its rows were delivered before the poller came
        watch.go_on(STEP)
    assert watch.looks - before <= 100 + 1 / TIMING.longest_gap + 2


def test_a_bucket_that_a_writer_has_named_is_queued_at_once_without_a_look(watch: Watch) -> None:
    before = watch.looks
    watch.commit()
    assert (watch.queued, watch.looks) == (1, before)


def test_what_was_committed_before_listening_began_anew_is_found_at_once(watch: Watch) -> None:
    watch.go_on(10 * TIMING.longest_idle)
    listener = Listener(watch.wakeups, watch.schedule, queue_announced=watch.poller.queue_announced)
    watch.insert(1)
    watch.wakeups.beginnings += 1
    watch.wakeups.notify([Signal("another box", None)])
    listener.turn()
    watch.go_on(STEP)
    assert watch.queued == 1


def test_buckets_of_several_partitions_are_handed_out_together_when_all_are_queued(watch: Watch) -> None:
    seen: list[int] = []
    watch.poller._hand_out = lambda: seen.append(watch.queued)
    watch.insert(1)
    watch.insert(2)
    watch.wakeups.notify([Signal(watch.box.name, bucket, due=True) for bucket in (1, 2)])
    Listener(watch.wakeups, watch.schedule, queue_announced=watch.poller.queue_announced).turn()
    assert seen == [2]


def test_announcements_that_had_to_wait_are_handed_out_together_by_the_thread_that_queues_them(watch: Watch) -> None:
    watch.commit()
    seen: list[int] = []
    watch.poller._hand_out = lambda: seen.append(watch.queued)
    watch.schedule.announce(watch.box.name, [1, 2, 3])
    watch.clock.advance(timedelta(seconds=STEP))
    watch.poller.turn()
    assert seen == [3]


def test_what_was_gathered_is_handed_out_though_the_coordinator_goes_away_half_way(watch: Watch) -> None:
    handed_out: list[bool] = []
    watch.poller._hand_out = lambda: handed_out.append(True)

    def away(_box: Box, _jobs: Sequence[Job]) -> int:
        raise QueueUnavailable("no answer")

    watch.queue.push = away  # type: ignore[method-assign, assignment]
    watch.commit()
    assert handed_out == [True]
    watch.schedule.announce(watch.box.name, [1])
    watch.clock.advance(timedelta(seconds=STEP))
    with pytest.raises(QueueUnavailable):
        watch.poller.turn()
    assert handed_out == [True, True]


def test_where_a_writer_names_no_bucket_all_partitions_are_looked_at(watch: Watch) -> None:
    watch.insert(1)
    before = watch.looks
    watch.wakeups.notify([Signal(watch.box.name, None)])
    Listener(watch.wakeups, watch.schedule, queue_announced=watch.poller.queue_announced).turn()
    watch.go_on(STEP)
    assert (watch.queued, watch.looks) == (1, before + 2)


def test_under_strict_order_a_named_bucket_is_looked_at_where_the_last_hold_found_its_first_row_resting() -> None:
    watch = Watch(strict_order=StrictOrder.KEY, backoff=Backoff())
    watch.insert(1, errors_count=1, processed_at=watch.clock.now())
    watch.schedule.found(watch.box, due=(), nothing=[1])
    before = watch.looks
    watch.commit()
    watch.go_on(1)
    assert watch.queued == 0
    assert watch.looks > before


@pytest.mark.parametrize("order", StrictOrder)
def test_a_named_bucket_is_queued_at_once_whatever_the_order(order: StrictOrder) -> None:
    watch = Watch(strict_order=order, backoff=Backoff())
    watch.go_on(30)
    before = watch.looks
    watch.commit()
    assert (watch.queued, watch.looks) == (1, before)


def test_a_named_bucket_waits_while_the_box_is_paused(watch: Watch) -> None:
    watch.pauses.set(watch.box, polling_enabled=False)
    watch.go_on(10)
    watch.commit()
    watch.go_on(2)
    assert watch.queued == 0
    watch.pauses.set(watch.box, polling_enabled=True)
    watch.go_on(11)
    assert watch.queued == 1


def test_a_named_bucket_is_not_forgotten_where_the_queue_is_away_for_a_moment(watch: Watch) -> None:
    before, push = watch.looks, watch.queue.push
    watch.queue.push = refuse  # type: ignore[assignment,method-assign]
    watch.commit()
    watch.clock.advance(timedelta(seconds=1 + STEP))
    with pytest.raises(QueueUnavailable):
        watch.poller.turn()
    watch.queue.push = push  # type: ignore[method-assign]
    watch.go_on(1 + STEP)
    assert (watch.queued, watch.looks) == (1, before)


def test_a_turn_with_nothing_to_queue_does_not_end_an_outage(watch: Watch) -> None:
    push, ping = watch.queue.push, watch.queue.ping
    watch.queue.push = watch.queue.ping = refuse  # type: ignore[assignment,method-assign]
    watch.schedule.announce(watch.box.name, [1])
    for _ in range(3):  # the announcement is not due again at once
        with pytest.raises(QueueUnavailable):
            watch.poller.turn()
    watch.queue.push, watch.queue.ping = push, ping  # type: ignore[method-assign]
    watch.poller.turn()
    watch.go_on(1 + STEP)
    assert watch.queued == 1


def test_a_named_bucket_is_not_forgotten_where_the_lease_cannot_be_asked_for(watch: Watch) -> None:
    watch.go_on(5)  # the poller's own lease runs out
    acquire, before = watch.leases.acquire, watch.looks
    watch.leases.acquire = refuse  # type: ignore[assignment,method-assign]
    watch.commit()
    watch.leases.acquire = acquire  # type: ignore[method-assign]
    watch.go_on(1 + STEP)
    assert (watch.queued, watch.looks) == (1, before)


def test_a_bucket_of_which_another_worker_takes_care_is_left_to_it(watch: Watch) -> None:
    watch.go_on(5)  # the poller's own lease runs out
    watch.leases.acquire(LeaseName(Duty.POLLING, watch.box.name, 1), "other", ttl=timedelta(seconds=60))
    watch.commit()
    watch.go_on(STEP)
    assert watch.queued == 0


def test_a_worker_that_divides_the_box_otherwise_takes_no_care_of_this_ones_buckets(watch: Watch) -> None:
    watch.go_on(5)  # the poller's own lease runs out
    watch.leases.acquire(LeaseName(Duty.POLLING, watch.box.name, 1, of=3), "other", ttl=timedelta(seconds=60))
    watch.commit()
    watch.go_on(STEP)
    assert watch.queued == 1


def refuse(*_: object) -> int:
    raise QueueUnavailable("gone")


def test_a_check_hands_on_all_buckets_that_have_work() -> None:
    watch = Watch()
    for bucket in range(4):
        watch.insert(bucket, bucket=bucket)
    watch.go_on(2 * STEP)
    assert watch.queued == 4


def test_a_poll_that_finds_more_rows_than_it_takes_leaves_no_bucket_out() -> None:
    """Found by the simulation: the bucket of the last row waited for the next check, up to five seconds."""
    watch = Watch(limits=PollLimits(regular=2, retryable=2, take_wait=0.0), bucket_size=4)
    watch.insert(0, 0, 0, 2)
    watch.go_on(2 * STEP)
    assert watch.queued == 2


def test_a_job_names_a_thousand_rows_at_most_however_many_a_poll_finds() -> None:
    """A take drops elements of over a megabyte, as no job has: the bucket would be polled again and again, and never taken."""
    watch = Watch(limits=PollLimits(regular=5_000, take_wait=0.0))
    watch.insert(*[1] * 1_500)
    watch.go_on(2 * STEP)
    hold = watch.queue.take([watch.box], wait=timedelta(0), ttl=timedelta(seconds=4), share=1)
    assert hold is not None
    assert [len(job.ids) for job in hold.jobs] == [1_000]


# ── poll middlewares ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("answer", [None, True, "done"])
def test_a_poll_middleware_may_return_what_it_likes(answer: Any) -> None:
    def around(_task: Any, call_next: Callable[[], Any]) -> Any:
        call_next()
        return answer

    watch = Watch(middlewares=[around])
    watch.insert(1)
    watch.go_on(1.5)
    assert watch.queued == 1
    assert watch.tracked == []


@pytest.mark.parametrize("told", [True, False])
def test_a_poll_middleware_that_does_not_call_on_puts_the_poll_off(told: bool) -> None:
    open_ = False

    def gate(_task: Any, call_next: Callable[[], Any]) -> None:
        if open_:
            call_next()

    watch = Watch(middlewares=[gate])
    if told:
        watch.commit()
    else:
        watch.insert(1)
    watch.go_on(2.5)
    assert watch.queued == 0
    assert set(watch.observer.throttlings) == {("middleware", "skip")}
    assert len(watch.observer.throttlings) < 20  # a thousand turns
    open_ = True
    watch.go_on(1.5)
    assert watch.queued == 1


def test_a_poll_middleware_cannot_swallow_an_outage() -> None:
    def swallows(_task: Any, call_next: Callable[[], Any]) -> None:
        with suppress(Exception):
            call_next()

    watch = Watch(middlewares=[swallows])

    def refuse(*_args: Any, **_options: Any) -> Any:
        raise QueueUnavailable("Redis is gone")

    watch.queue.push = refuse  # type: ignore[method-assign]
    watch.insert(1)
    with pytest.raises(QueueUnavailable):
        watch.go_on(1.5)


def test_a_queue_delay_of_zero_keeps_neither_the_database_nor_redis_busy() -> None:
    watch = Watch("aggressive", pace=Pace(queue_delay=0.0))
    watch.wakeups.reliable = False  # else checks grow rare by themselves
    watch.go_on(1)
    before = watch.looks
    for _ in range(1000):
        watch.clock.advance(timedelta(milliseconds=1))
        watch.poller.turn()
    assert watch.looks - before <= 1 / SHORTEST_DELAY
