"""Which thread the jobs wait for that come while one keeps up with its box."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.box import Box
from boxengine.domain.job import ANY_ID, Job
from boxengine.engine.delivering.holds.gathering import MOST, PATIENCE, Gathering
from boxengine.engine.delivering.holds.sizing import AT_ONCE, WORTH_SHARING
from boxengine.engine.delivering.work import Report
from boxengine.errors import QueueUnavailable
from boxengine.ports import Hold
from tests.unit.engine.bench import make_box

BOX, OTHER = make_box(name="order_outbox_item"), make_box(name="payment_outbox_item")
QUICK = Report(claimed=3)


def jobs(*buckets: int) -> list[Job]:
    return [Job(bucket, 0, ANY_ID) for bucket in buckets]


def hold_of(box: Box = BOX) -> Hold:
    return Hold(box, "token", (), 0.0, frozenset({0}), frozenset())


class Threads:
    """Threads at work, over a clock of their own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.gathering = Gathering(self.clock)

    def at_work(self, report: Report = QUICK, *, box: Box = BOX) -> Hold:
        """A thread that had such a batch, and has just begun the next."""
        hold = hold_of(box)
        self.gathering.begin(hold)
        self.gathering.batch_begins(hold)
        self.gathering.batch_ended(hold, report)
        self.gathering.batch_begins(hold)
        return hold

    def buckets(self) -> list[int]:
        found = self.gathering.take()
        return [] if found is None else [job.bucket for job in found[1]]


def test_jobs_wait_for_a_thread_that_keeps_up_each_bucket_once() -> None:
    threads = Threads()
    hold = threads.at_work()
    assert threads.gathering.add(BOX, jobs(1, 2))
    assert threads.gathering.add(BOX, jobs(2, 3))
    assert threads.gathering.waits(BOX)
    threads.gathering.end(hold)
    assert threads.buckets() == [1, 2, 3]
    assert not threads.gathering.waits(BOX)


def test_nothing_is_gathered_where_nobody_works_on_the_box() -> None:
    threads = Threads()
    threads.at_work(box=OTHER)
    assert not threads.gathering.add(BOX, jobs(1))
    assert threads.gathering.take() is None


@pytest.mark.parametrize(
    "report",
    [
        Report(claimed=WORTH_SHARING),
        Report(claimed=1, sending=2 * AT_ONCE),
        Report(claimed=1, unreachable={"http": QueueUnavailable("gone")}),
    ],
    ids=["large", "slow", "unreachable"],
)
def test_where_more_threads_would_help_nothing_is_gathered(report: Report) -> None:
    threads = Threads()
    threads.at_work(report)
    assert not threads.gathering.add(BOX, jobs(1))


def test_a_batch_that_takes_long_may_hang_and_any_other_thread_takes_what_waited_for_it() -> None:
    threads = Threads()
    threads.at_work()
    assert threads.gathering.add(BOX, jobs(1))
    assert not threads.gathering.is_due()
    threads.clock.advance(timedelta(seconds=2 * PATIENCE))
    assert threads.gathering.add(BOX, jobs(2))
    assert threads.gathering.is_due()
    assert threads.buckets() == [1, 2]


def test_where_one_thread_sufficed_lately_jobs_are_gathered_for_whoever_takes_them() -> None:
    threads = Threads()
    threads.gathering.end(threads.at_work())
    assert threads.gathering.add(BOX, jobs(1))
    assert threads.gathering.add(BOX, jobs(2))
    assert threads.gathering.is_due()
    assert threads.buckets() == [1, 2]


def test_jobs_do_not_wait_for_a_thread_that_began_after_they_had_come() -> None:
    threads = Threads()
    first = threads.at_work()
    threads.gathering.add(BOX, jobs(1))
    threads.clock.advance(timedelta(seconds=PATIENCE / 4))
    threads.at_work()
    threads.gathering.end(first)
    assert threads.buckets() == [1]


def test_while_another_thread_keeps_up_it_is_the_one_that_takes() -> None:
    threads = Threads()
    first, second = threads.at_work(), threads.at_work()
    threads.gathering.add(BOX, jobs(1))
    threads.gathering.end(first)
    assert not threads.gathering.is_due()
    assert threads.buckets() == []
    threads.gathering.end(second)
    assert threads.gathering.is_due()
    assert threads.buckets() == [1]


def test_a_thread_begins_at_the_pace_that_its_box_had_before() -> None:
    threads = Threads()
    threads.gathering.end(threads.at_work())
    threads.gathering.begin(again := hold_of())
    assert threads.gathering.add(BOX, jobs(1))
    threads.gathering.batch_ended(again, Report(claimed=WORTH_SHARING))
    threads.gathering.end(again)
    threads.gathering.begin(hold_of())
    assert not threads.gathering.add(BOX, jobs(2))


def test_very_many_jobs_are_taken_in_parts() -> None:
    threads = Threads()
    threads.gathering.put_back(BOX, jobs(*range(MOST + 1)))
    assert threads.buckets() == list(range(MOST))
    assert threads.buckets() == [MOST]
