"""The job queue: at most one job per bucket queued or in work, shared out fairly, nothing that must not be lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Lock
from typing import NamedTuple

import pytest

from boxengine.domain.box import Box
from boxengine.ports import Hold, QueueState, WhenLong
from tests.conformance import coordination
from tests.conformance.coordination import NO_WAIT, NOON, TTL, WAIT, Rig, job, make_box
from tests.eventually import eventually

BOX = make_box()
SECOND = timedelta(seconds=1)


@pytest.fixture(params=coordination.NAMES)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with coordination.open_rig(request.param, request) as opened:
        yield opened


# ── push ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pushed_job_is_taken_whole(rig: Rig) -> None:
    assert rig.queue.push(BOX, [job(3, 7, 8, 9)]) == 1
    hold = rig.take(BOX)
    assert hold.box is BOX
    assert hold.jobs == (job(3, 7, 8, 9),)
    assert hold.buckets == {3}


def test_pushing_nothing_queues_nothing(rig: Rig) -> None:
    assert rig.queue.push(BOX, []) == 0
    assert rig.queue.state(BOX) == QueueState(0, None)


def test_a_bucket_that_is_queued_is_not_queued_again(rig: Rig) -> None:
    assert rig.queue.push(BOX, [job(1), job(2)]) == 2
    assert rig.queue.push(BOX, [job(2, 55), job(3)]) == 1
    assert rig.queue.state(BOX).length == 3


def test_a_bucket_named_twice_in_one_push_is_queued_once(rig: Rig) -> None:
    assert rig.queue.push(BOX, [job(1, 10), job(1, 11)]) == 1
    assert rig.take(BOX).jobs == (job(1, 10),)


def test_a_bucket_in_work_is_not_queued(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    rig.take(BOX)
    assert rig.queue.push(BOX, [job(1)]) == 0
    assert rig.queue.state(BOX).length == 0


def test_a_bucket_can_be_queued_again_once_it_was_released(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    hold = rig.take(BOX)
    assert rig.queue.release(hold, [1]) == frozenset()
    assert rig.queue.push(BOX, [job(1)]) == 1


def test_buckets_of_different_boxes_do_not_meet(rig: Rig) -> None:
    other = make_box("payment_inbox_item")
    assert rig.queue.push(BOX, [job(1)]) == 1
    assert rig.queue.push(other, [job(1)]) == 1
    assert {rig.take(BOX).box.name, rig.take(other).box.name} == {BOX.name, other.name}


@pytest.mark.parametrize("name", ["combined/outbox_item", "заказ_outbox_item", "注文/送信箱"])
def test_any_box_name_works(rig: Rig, name: str) -> None:
    box = make_box(name)
    rig.queue.push(box, [job(5)])
    hold = rig.take(BOX, box)
    assert hold.box is box
    rig.queue.push(box, [job(5)])
    assert rig.queue.extend(hold, ttl=TTL) == frozenset()
    assert rig.queue.release(hold, [5]) == {5}
    rig.queue.hand_back(hold, [job(5)])
    assert rig.queue.state(box).length == 1


def test_thousands_of_jobs_are_pushed_in_one_call(rig: Rig) -> None:
    box, jobs = make_box(buckets=2500), [job(bucket) for bucket in range(2500)]
    assert rig.queue.push(box, jobs) == 2500
    assert rig.queue.push(box, jobs) == 0
    assert rig.take(box).jobs == tuple(jobs[:500])


# ── take ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_queue_gives_nothing(rig: Rig) -> None:
    assert rig.finds_nothing(BOX)
    assert rig.finds_nothing()


def test_jobs_are_taken_in_the_order_they_were_pushed(rig: Rig) -> None:
    rig.queue.push(BOX, [job(4), job(2)])
    rig.queue.push(BOX, [job(9)])
    assert [taken.bucket for taken in rig.take(BOX).jobs] == [4, 2, 9]


@pytest.mark.parametrize(("queued", "share", "taken"), [(1, 4, 1), (4, 4, 1), (5, 4, 2), (16, 4, 4), (7, 1, 7)])
def test_a_take_is_the_queue_divided_by_the_share_rounded_up(rig: Rig, queued: int, share: int, taken: int) -> None:
    rig.queue.push(BOX, [job(bucket) for bucket in range(queued)])
    hold = rig.take(BOX, share=share)
    assert len(hold.jobs) == taken
    assert rig.queue.state(BOX).length == queued - taken


def test_a_take_stops_at_five_hundred_ids(rig: Rig) -> None:
    rig.queue.push(BOX, [job(bucket, *range(1, 201)) for bucket in range(6)])
    assert len(rig.take(BOX).jobs) == 3


def test_a_take_is_of_one_box_only(rig: Rig) -> None:
    other = make_box("payment_inbox_item")
    rig.queue.push(BOX, [job(1), job(2)])
    rig.queue.push(other, [job(3), job(4)])
    first, second = rig.take(BOX, other), rig.take(BOX, other)
    assert {first.box.name, second.box.name} == {BOX.name, other.name}
    assert len(first.jobs) == len(second.jobs) == 2


def test_no_box_starves_behind_one_that_always_has_jobs(rig: Rig) -> None:
    boxes = [make_box(name) for name in ("a", "b", "c")]
    for box in boxes:
        rig.queue.push(box, [job(bucket) for bucket in range(10)])
    served = [rig.take(*boxes, share=1000).box.name for _ in range(9)]
    assert {name: served.count(name) for name in "abc"} == {"a": 3, "b": 3, "c": 3}


def test_a_waiting_take_gets_a_job_that_is_pushed_meanwhile(rig: Rig) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.take, BOX, make_box("other"), wait=WAIT)
        rig.queue.push(BOX, [job(1)])
        assert waiting.result(timeout=30).jobs == (job(1),)


def test_a_take_that_waits_returns_when_it_is_interrupted_and_a_later_one_takes(rig: Rig) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.queue.take, [BOX, make_box("other")], wait=WAIT, ttl=TTL, share=1)

        def is_back() -> bool:
            rig.queue.interrupt()  # again, if it had not yet begun to wait
            return waiting.done()

        eventually(is_back)
        assert waiting.result() is None
    rig.queue.push(BOX, [job(1)])
    assert rig.take(BOX, wait=WAIT).jobs == (job(1),)


def test_a_hold_is_valid_for_its_ttl_from_before_it_was_asked_for(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    before = rig.clock.monotonic()
    hold = rig.take(BOX, ttl=TTL)
    assert before + 30 <= hold.valid_until <= rig.clock.monotonic() + 30


def test_every_hold_has_a_token_of_its_own(rig: Rig) -> None:
    rig.queue.push(BOX, [job(bucket) for bucket in range(5)])
    assert len({rig.take(BOX, share=1000).token for _ in range(5)}) == 5


# ── seize ────────────────────────────────────────────────────────────────────────────────────────────


def seize(rig: Rig, *buckets: int, ttl: timedelta = TTL) -> Hold | None:
    """What a thread that stands ready gets."""
    return rig.queue.seize(BOX, [job(bucket) for bucket in buckets], ttl=ttl)


def test_what_is_seized_is_held_and_not_queued(rig: Rig) -> None:
    before = rig.clock.monotonic()
    hold = rig.queue.seize(BOX, [job(3, 7, 8), job(4)], ttl=TTL)
    assert hold is not None
    assert (hold.box, hold.jobs, hold.buckets) == (BOX, (job(3, 7, 8), job(4)), frozenset({3, 4}))
    assert before <= hold.valid_until - TTL.total_seconds() <= rig.clock.monotonic()
    assert rig.queue.state(BOX).length == 0
    assert rig.queue.extend(hold, ttl=TTL) == frozenset()
    assert rig.queue.unattended(BOX, [3, 4, 5]) == [5]


def test_seizing_nothing_takes_nothing(rig: Rig) -> None:
    assert seize(rig) is None


def test_a_bucket_named_twice_is_seized_once(rig: Rig) -> None:
    hold = rig.queue.seize(BOX, [job(1, 10), job(1, 11)], ttl=TTL)
    assert hold is not None
    assert hold.jobs == (job(1, 10),)


def test_a_queued_bucket_is_left_to_whoever_takes_it_from_the_queue(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    hold = seize(rig, 1, 2)
    assert hold is not None
    assert hold.buckets == {2}
    assert seize(rig, 1) is None
    assert rig.take(BOX).buckets == {1}


def test_a_bucket_in_work_is_not_seized_and_its_holder_looks_again(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    hold = rig.take(BOX)
    assert seize(rig, 1) is None
    assert rig.queue.release(hold, {1}) == {1}


def test_a_seized_bucket_is_in_work_for_everybody_else(rig: Rig) -> None:
    hold = seize(rig, 1)
    assert hold is not None
    assert rig.queue.push(BOX, [job(1)]) == 0
    assert seize(rig, 1) is None
    assert rig.queue.release(hold, {1}) == {1}, "wanted again"
    assert rig.queue.release(hold, {1}) == frozenset()
    assert rig.queue.push(BOX, [job(1)]) == 1


def test_seizing_a_bucket_grants_the_wish_of_those_who_pushed_it_before(rig: Rig) -> None:
    first = seize(rig, 1, ttl=SECOND)
    assert first is not None
    rig.queue.push(BOX, [job(1)])
    rig.pass_time(2 * SECOND)
    second = seize(rig, 1)
    assert second is not None
    assert rig.queue.release(second, {1}) == frozenset()


def test_a_bucket_whose_holder_died_is_seized_as_orphaned(rig: Rig) -> None:
    seize(rig, 1, ttl=SECOND)
    rig.pass_time(2 * SECOND)
    hold = seize(rig, 1, 2)
    assert hold is not None
    assert hold.orphaned == {1}


# ── work without leases ──────────────────────────────────────────────────────────────────────────────


def taken(rig: Rig, *buckets: int) -> Hold:
    """A hold of these buckets, taken from the queue."""
    rig.queue.push(BOX, [job(bucket) for bucket in buckets])
    return rig.take(BOX, share=1)


def test_buckets_are_in_work_until_their_holder_lets_them_go_and_for_good_if_it_died(rig: Rig) -> None:
    assert rig.queue.in_work(BOX) == frozenset()
    hold = taken(rig, 1, 2, 3, 4)
    assert rig.queue.in_work(BOX) == {1, 2, 3, 4}
    rig.queue.release(hold, [1])
    rig.queue.leave(hold, [2])
    rig.pass_time(TTL + SECOND)
    assert rig.queue.in_work(BOX) == {3, 4}
    rig.queue.push(BOX, [job(3)])
    rig.queue.hand_back(rig.take(BOX), [])
    assert rig.queue.in_work(BOX) == {4}
    assert rig.queue.in_work(make_box("other")) == frozenset()


def test_a_lease_that_was_left_to_expire_is_free_for_those_who_ask_for_it(rig: Rig) -> None:
    hold = taken(rig, 1, 2)
    rig.queue.leave(hold, [1])
    assert rig.queue.seize(BOX, [job(1), job(2)], ttl=TTL) is None
    mine = rig.queue.seize(BOX, [job(1), job(2)], ttl=TTL, left=True)
    assert mine is not None
    assert mine.buckets == {1}
    assert rig.queue.extend(hold, ttl=TTL) == {1}


def test_who_finishes_with_a_bucket_that_nobody_took_leaves_no_trace(rig: Rig) -> None:
    rig.queue.finish(BOX, [job(1), job(2)])
    assert rig.queue.state(BOX).length == 0
    hold = taken(rig, 1)
    assert rig.queue.release(hold, [1]) == frozenset()


def test_who_was_refused_a_bucket_before_another_finished_with_it_is_followed_by_a_job(rig: Rig) -> None:
    hold = taken(rig, 1, 2)
    assert rig.queue.give_way(hold, [1]) == frozenset()
    rig.queue.finish(BOX, [job(1, 7)])
    assert rig.queue.in_work(BOX) == {2}
    again = rig.take(BOX)
    assert again.jobs == (job(1, 7),)
    assert again.orphaned == frozenset()


def test_who_is_refused_a_bucket_with_which_another_has_finished_keeps_it(rig: Rig) -> None:
    hold = taken(rig, 1, 2)
    rig.queue.finish(BOX, [job(1)])
    assert rig.queue.state(BOX).length == 0
    assert rig.queue.give_way(hold, [1, 2]) == {1}
    assert rig.queue.in_work(BOX) == {1}
    assert rig.queue.give_way(hold, [1]) == frozenset(), "once for each that finishes"
    assert rig.queue.in_work(BOX) == frozenset()
    assert rig.queue.push(BOX, [job(1), job(2)]) == 0, "the leases are still there"


def test_a_push_is_no_reason_to_ask_again_for_a_bucket_that_was_refused(rig: Rig) -> None:
    hold = taken(rig, 1)
    rig.queue.push(BOX, [job(1)])
    assert rig.queue.give_way(hold, [1]) == frozenset()


def test_who_works_on_a_bucket_while_another_finishes_with_it_reads_it_once_more(rig: Rig) -> None:
    hold = taken(rig, 1, 2)
    rig.queue.finish(BOX, [job(1)])
    assert rig.queue.release(hold, [1, 2]) == {1}
    assert rig.queue.release(hold, [1]) == frozenset()
    assert rig.queue.in_work(BOX) == frozenset()


def test_a_bucket_with_which_another_has_finished_may_be_left_and_is_nobodys_orphan(rig: Rig) -> None:
    hold = taken(rig, 1)
    rig.queue.finish(BOX, [job(1)])
    rig.queue.leave(hold, [1])
    rig.pass_time(TTL + SECOND)
    rig.queue.push(BOX, [job(1)])
    assert rig.take(BOX).orphaned == frozenset()


def test_the_next_holder_of_a_bucket_is_not_told_what_was_finished_before(rig: Rig) -> None:
    hold = taken(rig, 1)
    rig.queue.finish(BOX, [job(1)])
    rig.queue.hand_back(hold, [job(1)])
    assert rig.queue.give_way(rig.take(BOX), [1]) == frozenset()


def test_who_lost_a_bucket_to_another_does_not_give_that_one_s_way(rig: Rig) -> None:
    late = taken(rig, 1)
    rig.pass_time(TTL + SECOND)
    hold = taken(rig, 1)
    rig.queue.finish(BOX, [job(1)])
    assert rig.queue.give_way(late, [1]) == frozenset()
    assert rig.queue.give_way(hold, [1]) == {1}


# ── leases of buckets ────────────────────────────────────────────────────────────────────────────────


def test_a_lease_that_ran_out_is_taken_over(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    dead = rig.take(BOX)
    rig.pass_time(TTL + SECOND)
    assert rig.queue.push(BOX, [job(1)]) == 1
    heir = rig.take(BOX)
    assert heir.buckets == {1}
    assert rig.queue.extend(dead, ttl=TTL) == {1}


def test_a_former_holder_does_not_free_its_heirs_lease(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    former = rig.take(BOX)
    rig.pass_time(TTL + SECOND)
    rig.queue.push(BOX, [job(1)])
    heir = rig.take(BOX)
    assert rig.queue.release(former, [1]) == frozenset()
    rig.queue.hand_back(former, [job(1)])
    assert rig.queue.state(BOX).length == 0
    assert rig.queue.extend(heir, ttl=TTL) == frozenset()


def test_a_former_holder_does_not_swallow_its_heirs_wish(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    former = rig.take(BOX)
    rig.pass_time(TTL + SECOND)
    rig.queue.push(BOX, [job(1)])
    heir = rig.take(BOX)
    rig.queue.push(BOX, [job(1)])
    assert rig.queue.release(former, [1]) == frozenset()
    assert rig.queue.release(heir, [1]) == {1}


def test_an_extended_lease_outlives_its_first_limit(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX)
    rig.pass_time(TTL - SECOND)
    assert rig.queue.extend(hold, ttl=TTL) == frozenset()
    rig.pass_time(TTL - SECOND)
    assert rig.queue.push(BOX, [job(1), job(2)]) == 0
    assert rig.queue.extend(hold, ttl=TTL) == frozenset()


def test_extend_names_only_what_was_lost(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX)
    rig.queue.release(hold, [1])
    assert rig.queue.extend(hold, ttl=TTL) == {1}


def test_a_job_whose_bucket_is_leased_elsewhere_is_dropped_and_its_holder_looks_again(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    holder = rig.take(BOX)
    rig.push_raw(BOX, b"1:1800000000:77")
    rig.push_raw(BOX, b"2:1800000000:78")
    assert rig.take(BOX).buckets == {2}
    assert rig.queue.release(holder, [1]) == {1}


def test_a_take_of_dropped_jobs_only_is_nothing(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    rig.take(BOX)
    rig.push_raw(BOX, b"1:1800000000:77")
    assert rig.finds_nothing(BOX)
    assert rig.queue.state(BOX).length == 0


# ── unattended ───────────────────────────────────────────────────────────────────────────────────────


def test_unattended_is_what_is_neither_queued_nor_in_work(rig: Rig) -> None:
    now = int(rig.clock.now().timestamp())
    rig.queue.push(BOX, [job(1, pushed_at=now), job(2, pushed_at=now)])
    hold = rig.take(BOX)
    rig.queue.push(BOX, [job(3, pushed_at=now)])
    assert rig.queue.unattended(BOX, range(5)) == [0, 4]
    assert rig.queue.unattended(BOX, [3, 2, 0]) == [0]
    assert rig.queue.unattended(BOX, []) == []
    rig.queue.release(hold, [1])
    assert rig.queue.unattended(BOX, range(5)) == [0, 1, 4]


def test_a_bucket_whose_lease_ran_out_is_unattended(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    rig.take(BOX)
    rig.pass_time(TTL + SECOND)
    assert rig.queue.unattended(BOX, [1]) == [1]


# ── wanted again ─────────────────────────────────────────────────────────────────────────────────────


def test_a_bucket_pushed_while_in_work_stays_with_its_holder_once_more(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX)
    rig.queue.push(BOX, [job(1)])
    assert rig.queue.release(hold, {1, 2}) == {1}
    assert rig.queue.push(BOX, [job(2)]) == 1
    assert rig.queue.release(hold, {1}) == frozenset()
    assert rig.queue.push(BOX, [job(1)]) == 1


def test_releasing_a_second_time_or_nothing_at_all_is_harmless(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX)
    for buckets in (hold.buckets, hold.buckets, ()):
        assert rig.queue.release(hold, buckets) == frozenset()


def test_a_hold_says_what_was_taken_whatever_becomes_of_its_leases(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2), job(3)])
    hold = rig.take(BOX)
    before = replace(hold)
    rig.queue.extend(hold, ttl=2 * TTL)
    rig.queue.release(hold, [1])
    rig.queue.leave(hold, [2])
    rig.queue.hand_back(hold, [job(3)])
    assert hold == before


def test_taking_a_bucket_grants_the_wish_of_those_who_pushed_it_before(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    rig.take(BOX)
    rig.queue.push(BOX, [job(1)])
    rig.pass_time(TTL + SECOND)
    rig.queue.push(BOX, [job(1)])
    assert rig.queue.release(rig.take(BOX), [1]) == frozenset()


# ── hand back ────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_handed_back_go_behind_all_others(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2), job(3), job(4)])
    hold = rig.take(BOX, share=4)
    assert hold.buckets == {1}
    rig.queue.hand_back(hold, [job(1, 91)])
    assert rig.take(BOX).jobs == (job(2), job(3), job(4), job(1, 91))


def test_handing_back_frees_every_lease_of_the_hold(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2), job(3)])
    hold = rig.take(BOX)
    rig.queue.push(BOX, [job(2)])
    rig.queue.hand_back(hold, [job(3)])
    assert rig.queue.push(BOX, [job(1), job(2), job(3)]) == 2


def test_handing_back_nothing_frees_too(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    rig.queue.hand_back(rig.take(BOX), [])
    assert rig.queue.push(BOX, [job(1)]) == 1


class LongQueue(NamedTuple):
    """One so long that polls wait, and a hold of the one bucket that is not in it."""

    box: Box
    hold: Hold


@pytest.fixture
def long_queue(rig: Rig) -> LongQueue:
    box = make_box(buckets=102)
    rig.queue.push(box, [job(101)])
    hold = rig.take(box)
    rig.queue.push(box, [job(bucket) for bucket in range(101)])
    return LongQueue(box, hold)


def test_what_is_handed_back_to_a_long_queue_may_be_freed_only(rig: Rig, long_queue: LongQueue) -> None:
    box, hold = long_queue
    assert not rig.queue.hand_back(hold, [job(101)], when_long=WhenLong.FREE)
    assert rig.queue.state(box).length == 101
    assert rig.queue.unattended(box, [101]) == [101]


def test_what_is_handed_back_to_a_long_queue_may_stay_with_its_holder(rig: Rig, long_queue: LongQueue) -> None:
    box, hold = long_queue
    assert not rig.queue.hand_back(hold, [job(101)], when_long=WhenLong.KEEP)
    assert rig.queue.state(box).length == 101
    assert rig.queue.extend(hold, ttl=TTL) == frozenset()
    assert rig.queue.in_work(box) == {101}


def test_what_is_handed_back_is_queued_however_long_the_queue_is(rig: Rig, long_queue: LongQueue) -> None:
    box, hold = long_queue
    assert rig.queue.hand_back(hold, [job(101)])
    assert rig.queue.state(box).length == 102


@pytest.mark.parametrize("when_long", WhenLong)
def test_a_queue_that_is_not_long_takes_what_is_handed_back(rig: Rig, when_long: WhenLong) -> None:
    rig.queue.push(BOX, [job(1)])
    assert rig.queue.hand_back(rig.take(BOX), [job(1)], when_long=when_long)
    assert rig.queue.state(BOX).length == 1


def test_a_bucket_queued_since_its_lease_was_lost_is_not_doubled_by_handing_it_back(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1)])
    hold = rig.take(BOX)
    rig.pass_time(TTL + SECOND)
    rig.queue.push(BOX, [job(1)])
    rig.queue.hand_back(hold, [job(1, 91)])
    assert rig.take(BOX).jobs == (job(1),)


# ── strangers, state, loss ───────────────────────────────────────────────────────────────────────────


def test_jobs_of_the_reference_are_taken(rig: Rig) -> None:
    rig.push_raw(BOX, b"12:1700000000:5,6,7")
    rig.push_raw(BOX, b"0:1700000001:1:some later field")
    assert rig.take(BOX).jobs == (job(12, 5, 6, 7, pushed_at=1_700_000_000), job(0, 1, pushed_at=1_700_000_001))


def test_the_largest_ids_of_a_bigint_column_are_taken(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1, 2**63 - 1, 1)])
    assert rig.take(BOX).jobs == (job(1, 2**63 - 1, 1),)


def test_a_bucket_that_strangers_queued_twice_is_taken_once(rig: Rig) -> None:
    for ids in (b"5", b"5,6", b"7"):
        rig.push_raw(BOX, b"3:1700000000:" + ids)
    hold = rig.take(BOX)
    assert [taken.ids for taken in hold.jobs] == [(5,)]
    assert rig.queue.state(BOX).length == 0
    assert rig.queue.release(hold, [3]) == frozenset()


@pytest.mark.parametrize(
    "element",
    [
        *(b"", b":", b"::", b"hello", b"1:2", b"1:2:", b"1::3", b":2:3", b"a:2:3", b"1:b:3", b"1:2:c", b"-1:2:3"),
        *(b"1:2:3,,4", b"1:2:3,", b"1:2:,3", b"1:2:0", b"1:2:-3", b"1:2:3\xff", b"1:2:3:\xc3\xa9", b"1.5:2:3"),
        *(b"\x00\x80\xff", b"%d:%s:%n", b'{"bucket":1}', b"9" * 10_000, b"0" * 100_000),
        *(b"1:2:" + b"1," * 50_000 + b"\xff", b"1:2:" + b"9" * 20_000),
    ],
    ids=lambda element: repr(element[:16]),
)
def test_an_element_that_is_no_job_is_dropped_and_counted(rig: Rig, element: bytes) -> None:
    rig.push_raw(BOX, element)
    rig.queue.push(BOX, [job(2)])
    assert rig.take(BOX).jobs == (job(2),)
    ((name, beginning),) = rig.corrupt
    assert (name, beginning[:200]) == (BOX.name, element[:200])


@pytest.mark.parametrize("bucket", [16, 17, 2**31, 2**63, 10**18])
def test_a_job_of_a_bucket_that_the_box_does_not_have_is_dropped_and_counted(rig: Rig, bucket: int) -> None:
    element = f"{bucket}:1800000000:1".encode()
    rig.push_raw(BOX, element)
    rig.queue.push(BOX, [job(15)])
    assert rig.take(BOX).jobs == (job(15),)
    assert rig.corrupt == [(BOX.name, element)]


def test_a_queue_of_rubbish_only_gives_nothing_and_is_emptied(rig: Rig) -> None:
    for number in range(20):
        rig.push_raw(BOX, b"rubbish %d" % number)
    assert rig.finds_nothing(BOX)
    assert len(rig.corrupt) == 20
    assert rig.queue.state(BOX) == QueueState(0, None)


def test_state_tells_length_and_age_of_the_oldest(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1, pushed_at=NOON)])
    rig.queue.push(BOX, [job(2, pushed_at=NOON + 7)])
    assert rig.queue.state(BOX) == QueueState(2, NOON)


def test_state_has_no_age_where_the_oldest_element_is_no_job(rig: Rig) -> None:
    rig.push_raw(BOX, b"rubbish")
    assert rig.queue.state(BOX) == QueueState(1, None)


def test_a_ping_is_answered(rig: Rig) -> None:
    rig.queue.ping()


Step = Callable[[Rig, Hold], object]
STEPS: dict[str, Step] = {
    "push": lambda rig, hold: rig.queue.push(BOX, [job(1), job(2), job(3)]),
    "take": lambda rig, hold: rig.queue.take([BOX], wait=NO_WAIT, ttl=TTL, share=2),
    "seize": lambda rig, hold: rig.queue.seize(BOX, [job(1), job(4)], ttl=TTL),
    "push again": lambda rig, hold: rig.queue.push(BOX, [job(1), job(2), job(3)]),
    "extend": lambda rig, hold: rig.queue.extend(hold, ttl=TTL),
    "release": lambda rig, hold: rig.queue.release(hold, [1]),
    "state": lambda rig, hold: rig.queue.state(BOX),
    "hand back": lambda rig, hold: rig.queue.hand_back(hold, []),
}


@pytest.mark.parametrize("flushed_before", STEPS)
def test_flushall_before_any_call_breaks_nothing(rig: Rig, flushed_before: str) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX)
    for name, step in STEPS.items():
        if name == flushed_before:
            rig.flush_all()
        step(rig, hold)
    rig.pass_time(TTL + SECOND)
    while not rig.finds_nothing(BOX):
        rig.pass_time(TTL + SECOND)
    assert rig.queue.push(BOX, [job(1), job(2), job(3)]) == 3
    assert rig.take(BOX).buckets == {1, 2, 3}


def test_after_flushall_a_holder_has_lost_its_leases(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX)
    rig.queue.push(BOX, [job(1)])
    rig.flush_all()
    assert rig.queue.release(hold, [1]) == frozenset()
    assert rig.queue.extend(hold, ttl=TTL) == {1, 2}


def test_no_bucket_is_in_two_hands_however_many_push_seize_and_take(rig: Rig) -> None:
    boxes = [make_box("a"), make_box("b")]
    held: set[tuple[str, int]] = set()
    guard = Lock()

    def work(seed: int) -> int:
        chance = random.Random(seed)
        for _ in range(60):
            box, jobs = chance.choice(boxes), [job(bucket) for bucket in chance.sample(range(8), 4)]
            if chance.random() < 0.3:
                hold = rig.queue.seize(box, jobs, ttl=TTL)
            else:
                rig.queue.push(box, jobs)
                hold = rig.queue.take(boxes, wait=NO_WAIT, ttl=TTL, share=2)
            if hold is not None:
                hold_and_let_go(hold, chance)
        return seed

    def hold_and_let_go(hold: Hold, chance: random.Random) -> None:
        with guard:
            mine = {(hold.box.name, bucket) for bucket in hold.buckets}
            assert not mine & held
            held.update(mine)
        if chance.random() < 0.5:
            assert rig.queue.extend(hold, ttl=TTL) == frozenset()
        with guard:
            held.difference_update(mine)
        # Wanted buckets stay in this hand: handed back, they are queued once more.
        kept = rig.queue.release(hold, hold.buckets)
        rig.queue.hand_back(replace(hold, buckets=kept), [job(bucket) for bucket in sorted(kept)])

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(work, range(4))) == [0, 1, 2, 3]
    for box in boxes:
        assert rig.queue.state(box).length <= 8


def test_jobs_of_a_box_nobody_asked_for_stay(rig: Rig) -> None:
    other: Box = make_box("other")
    rig.queue.push(other, [job(1)])
    assert rig.finds_nothing(BOX)
    assert rig.queue.state(other).length == 1


# ── buckets whose holder died ────────────────────────────────────────────────────────────────────────


def died(rig: Rig, *buckets: int) -> Hold:
    """A hold of these buckets whose leases have run out, and nobody has said a word."""
    rig.queue.push(BOX, [job(bucket) for bucket in buckets])
    hold = rig.take(BOX, ttl=SECOND)
    rig.pass_time(2 * SECOND)
    rig.queue.push(BOX, [job(bucket) for bucket in buckets])
    return hold


def test_a_bucket_is_nobodys_orphan_at_first(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    assert rig.take(BOX).orphaned == frozenset()


def test_buckets_whose_leases_ran_out_are_told_to_the_next_holder_as_orphaned(rig: Rig) -> None:
    died(rig, 1, 2)
    rig.queue.push(BOX, [job(3)])
    hold = rig.take(BOX)
    assert hold.buckets == {1, 2, 3}
    assert hold.orphaned == {1, 2}


def test_a_bucket_is_orphaned_once_for_each_holder_that_died(rig: Rig) -> None:
    died(rig, 1)
    hold = rig.take(BOX)
    rig.queue.release(hold, {1})
    rig.queue.push(BOX, [job(1)])
    assert rig.take(BOX).orphaned == frozenset()


def test_buckets_that_were_released_or_handed_back_are_no_orphans(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX)
    rig.queue.release(hold, {1})
    rig.queue.hand_back(hold, [job(2)])
    rig.queue.push(BOX, [job(1)])
    assert rig.take(BOX).orphaned == frozenset()


def test_buckets_that_their_holder_leaves_to_run_out_are_no_orphans(rig: Rig) -> None:
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX, ttl=SECOND)
    rig.queue.leave(hold, {1})
    assert rig.queue.push(BOX, [job(1)]) == 0, "the leases are still there"
    rig.pass_time(2 * SECOND)
    rig.queue.push(BOX, [job(1), job(2)])
    assert rig.take(BOX).orphaned == {2}


def test_who_lost_a_bucket_to_another_leaves_that_one_alone(rig: Rig) -> None:
    late = died(rig, 1)
    rig.take(BOX, ttl=SECOND)
    rig.queue.leave(late, {1})
    rig.pass_time(2 * SECOND)
    rig.queue.push(BOX, [job(1)])
    assert rig.take(BOX).orphaned == {1}


def test_a_queue_that_forgot_everything_knows_of_no_orphans(rig: Rig) -> None:
    died(rig, 1)
    rig.flush_all()
    rig.queue.push(BOX, [job(1)])
    assert rig.take(BOX).orphaned == frozenset()
