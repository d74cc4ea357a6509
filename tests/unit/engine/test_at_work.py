"""What the threads of a processor are at."""

from __future__ import annotations

from datetime import timedelta

from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.box import Box, BoxType
from boxengine.engine.delivering.holds.at_work import AtWork
from boxengine.ports import Engagement, Hold

ORDERS = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="items")
PAYMENTS = Box(name="payment_inbox_item", type=BoxType.INBOX, table="payments")


def hold(box: Box) -> Hold:
    return Hold(box=box, token="t", jobs=(), valid_until=0.0, buckets=frozenset({1}))


def test_threads_are_counted_by_box_with_the_time_of_the_one_that_is_longest_at_it() -> None:
    clock = ManualClock()
    started = clock.now()
    at_work = AtWork(clock)
    first, second, other = hold(ORDERS), hold(ORDERS), hold(PAYMENTS)
    for each in (first, other, second):
        at_work.begin(each)
        clock.advance(timedelta(seconds=10))
    assert at_work.by_box() == {ORDERS.name: 2, PAYMENTS.name: 1}
    assert list(at_work.engagements()) == [
        Engagement(box=ORDERS.name, threads=2, since=started),
        Engagement(box=PAYMENTS.name, threads=1, since=started + timedelta(seconds=10)),
    ]
    at_work.end(first)
    assert at_work.engagements()[1] == Engagement(box=ORDERS.name, threads=1, since=started + timedelta(seconds=20))
    at_work.end(second)
    at_work.end(other)
    at_work.end(other)
    assert (at_work.by_box().total(), list(at_work.engagements())) == (0, [])
