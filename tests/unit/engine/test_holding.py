"""What is left of a hold: only its drain lets buckets go, and a renewal under way at that moment takes nothing away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.delivering.holds.attended import Attended
from boxengine.engine.delivering.holds.holding import Holding
from boxengine.engine.delivering.holds.keeper import LeaseKeeper
from boxengine.errors import QueueUnavailable
from boxengine.ports import Hold, WhenLong
from tests.unit.engine.bench import make_box, usual

TTL = timedelta(seconds=4)


class Meddled(MemoryJobQueue):
    """Lets something happen right after the server has let go of a bucket, before its holder knows."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        wanted = super().release(hold, buckets)
        self.meanwhile()
        return wanted

    def hand_back(self, hold: Hold, jobs: Sequence[Job], *, when_long: WhenLong = WhenLong.QUEUE) -> bool:
        queued = super().hand_back(hold, jobs, when_long=when_long)
        self.meanwhile()
        return queued


class Case:
    """A holding of three buckets, and the keeper of its leases."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.box = make_box(bucket_size=3)
        self.queue = Meddled(clock=self.clock)
        self.keeper = LeaseKeeper(self.queue, clock=self.clock, length=usual(TTL), longest=timedelta(minutes=3))
        self.queue.push(self.box, [Job(bucket, 0, (1,)) for bucket in self.box.buckets])
        hold = self.queue.take([self.box], wait=timedelta(0), ttl=TTL, share=1)
        assert hold is not None
        self.hold = hold
        self.holding = Holding(hold, self.queue)

    def renew(self) -> None:
        self.clock.advance(TTL / 2)
        self.keeper.turn()

    def want(self, buckets: set[int]) -> frozenset[int]:
        return self.holding.want(buckets, now=self.clock.monotonic())

    @property
    def in_time(self) -> bool:
        return self.holding.valid_until > self.clock.monotonic()


@pytest.mark.parametrize(
    "letting_go", [lambda holding: holding.release({0}), lambda holding: holding.hand_back([Job(0, 0, (1,))])]
)
def test_a_bucket_let_go_while_the_leases_are_renewed_is_not_taken_for_lost(
    letting_go: Callable[[Holding], object],
) -> None:
    case = Case()
    case.queue.meanwhile = case.renew
    with case.keeper.keeping(case.holding):
        letting_go(case.holding)
        assert case.in_time
        assert case.holding.buckets == {1, 2}
        case.renew()
        assert case.in_time


def test_a_bucket_that_somebody_else_has_ends_the_holding_for_good() -> None:
    case = Case()
    case.queue.release(case.hold, [0])
    with case.keeper.keeping(case.holding):
        for _ in range(3):
            case.renew()
            assert not case.in_time
    assert case.holding.buckets == {1, 2}


def test_a_bucket_wanted_again_stays_held() -> None:
    case = Case()
    case.queue.push(case.box, [Job(1, 0, (9,))])
    assert case.holding.release({0, 1}) == {1}
    assert case.holding.buckets == {1, 2}


def test_a_bucket_with_rows_that_came_during_the_batch_stays_held_though_the_coordinator_knows_nothing_of_them() -> (
    None
):
    case = Case()
    case.holding.reading({0, 1})
    assert case.want({1, 2, 9}) == {1, 2}
    assert case.holding.release({0, 1}) == {1}
    assert case.holding.buckets == {1, 2}


def test_rows_that_the_next_batch_sees_anyway_keep_no_bucket() -> None:
    case = Case()
    case.want({1})
    case.holding.reading({1})
    assert case.holding.release({1}) == frozenset()


def test_hints_for_a_bucket_that_is_being_let_go_are_left_to_the_coordinator() -> None:
    case = Case()
    heard: list[frozenset[int]] = []
    case.queue.meanwhile = lambda: heard.append(case.want({0, 1}))
    case.holding.release({0})
    assert heard == [{1}]
    assert case.want({0}) == frozenset()


def test_hints_are_left_to_the_coordinator_once_the_leases_may_have_run_out() -> None:
    case = Case()
    case.clock.advance(TTL)
    assert case.want({0}) == frozenset()


def test_of_the_buckets_with_new_rows_those_are_left_that_no_thread_holds() -> None:
    case, attended = Case(), Attended()
    now = case.clock.monotonic()
    with attended.attending(case.holding):
        assert attended.want(case.box.name, {1, 9}, now=now) == {9}
        assert attended.want("another_outbox_item", {1}, now=now) == {1}
        assert case.holding.release({1}) == {1}
    assert attended.want(case.box.name, {1}, now=now) == {1}


def test_what_the_coordinator_was_not_told_is_still_held_and_can_be_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_arguments: object) -> None:
        raise QueueUnavailable("down")

    case = Case()
    monkeypatch.setattr(case.queue, "leave", down)
    with pytest.raises(QueueUnavailable):
        case.holding.leave({0, 1})
    monkeypatch.undo()
    case.holding.leave_all()
    assert case.holding.buckets == frozenset()
    case.clock.advance(2 * TTL)
    case.queue.push(case.box, [Job(bucket, 0, (1,)) for bucket in case.box.buckets])
    again = case.queue.take([case.box], wait=timedelta(0), ttl=TTL, share=1)
    assert again is not None
    assert again.orphaned == frozenset()


# ── holds that begin without leases ──────────────────────────────────────────────────────────────────


class Bare:
    """A holding of three buckets without leases."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.box = make_box(bucket_size=4)
        self.queue = Meddled(clock=self.clock)
        self.keeper = LeaseKeeper(self.queue, clock=self.clock, length=usual(TTL), longest=timedelta(minutes=3))
        until = self.clock.monotonic() + TTL.total_seconds()
        self.holding = Holding(Hold(self.box, "", self.jobs(0, 1, 2), until, frozenset({0, 1, 2})), self.queue, ttl=TTL)

    @staticmethod
    def jobs(*buckets: int) -> tuple[Job, ...]:
        return tuple(Job(bucket, 0, (1,)) for bucket in buckets)

    def taken_elsewhere(self, *buckets: int) -> Hold:
        """Another worker has taken these from the queue."""
        self.queue.push(self.box, self.jobs(*buckets))
        hold = self.queue.take([self.box], wait=timedelta(0), ttl=TTL, share=1)
        assert hold is not None
        assert hold.buckets == set(buckets)
        return hold

    def queued(self) -> int:
        return self.queue.state(self.box).length

    def free(self) -> list[int]:
        return self.queue.unattended(self.box, range(4))


def test_buckets_that_are_done_without_leases_leave_no_trace() -> None:
    bare = Bare()
    assert bare.holding.release({0, 1, 2}) == frozenset()
    assert bare.holding.buckets == frozenset()
    assert (bare.free(), bare.queued(), bare.queue.in_work(bare.box)) == ([0, 1, 2, 3], 0, frozenset())


def test_a_bucket_with_new_rows_is_kept_without_a_lease_until_it_is_secured() -> None:
    bare = Bare()
    bare.holding.want({1}, now=bare.clock.monotonic())
    assert bare.holding.release({0, 1}) == {1}
    assert bare.free() == [0, 1, 2, 3]
    bare.holding.secure()
    assert bare.holding.buckets == {1, 2}
    assert bare.free() == [0, 3]
    bare.holding.reading({1, 2})
    assert bare.holding.release({1, 2}) == frozenset()
    assert (bare.free(), bare.queue.in_work(bare.box)) == ([0, 1, 2, 3], frozenset())


def test_leases_are_asked_for_once() -> None:
    bare = Bare()
    bare.holding.secure()
    token = bare.holding.hold.token
    bare.holding.secure()
    assert bare.holding.hold.token == token != ""


def test_a_bucket_that_another_has_taken_meanwhile_is_that_one_s_and_is_read_once_more() -> None:
    bare = Bare()
    other = bare.taken_elsewhere(1)
    bare.holding.secure()
    assert bare.holding.buckets == {0, 2}
    assert bare.queue.give_way(other, {1}) == {1}


def test_a_bucket_that_was_refused_to_another_and_has_more_rows_is_taken_over() -> None:
    bare = Bare()
    bare.queue.give_way(bare.taken_elsewhere(1), {1})
    bare.holding.secure()
    assert bare.holding.buckets == {0, 1, 2}


def test_a_bucket_that_was_refused_to_another_is_queued_when_it_is_done() -> None:
    bare = Bare()
    bare.queue.give_way(bare.taken_elsewhere(1), {1})
    bare.holding.release({0, 1, 2})
    assert bare.queued() == 1
    assert 1 not in bare.queue.in_work(bare.box)


def test_a_bucket_that_was_refused_to_another_is_queued_when_it_is_handed_back() -> None:
    bare = Bare()
    bare.queue.give_way(bare.taken_elsewhere(1), {1})
    bare.holding.hand_back(bare.jobs(0, 1, 2))
    assert bare.queued() == 3
    assert bare.holding.buckets == frozenset()


def test_buckets_that_are_left_have_their_pause_as_if_they_had_been_leased() -> None:
    bare = Bare()
    bare.holding.leave({0, 1})
    assert bare.holding.buckets == {2}
    assert bare.free() == [3]
    assert bare.queue.in_work(bare.box) == {2}


def test_a_bucket_that_the_database_refused_waits_for_whoever_has_it() -> None:
    bare = Bare()
    other = bare.taken_elsewhere(1)
    bare.holding.reading({1})
    assert bare.holding.give_way({1}) == frozenset()
    assert bare.holding.buckets == {0, 2}
    assert bare.queue.release(other, {1}) == {1}, "whoever has it reads it once more"


def test_a_bucket_of_which_a_worker_died_is_left_to_those_who_take_care() -> None:
    bare = Bare()
    dead = bare.taken_elsewhere(1)
    bare.clock.advance(2 * TTL)
    bare.holding.secure()
    assert bare.holding.buckets == {0, 2}
    assert dead.token != bare.holding.hold.token
    bare.holding.release({0, 2})
    bare.clock.advance(2 * TTL)
    hold = bare.queue.seize(bare.box, bare.jobs(1), ttl=TTL)
    assert hold is not None
    assert hold.orphaned == {1}


def test_a_batch_that_takes_long_is_leased_by_the_keeper() -> None:
    bare = Bare()
    with bare.keeper.keeping(bare.holding):
        bare.keeper.turn()
        assert bare.free() == [3]
        bare.clock.advance(TTL * 0.9)
        bare.keeper.turn()
        bare.clock.advance(TTL * 0.9)
        assert bare.free() == [3], "renewed like any other"
        assert bare.holding.valid_until > bare.clock.monotonic()
        assert bare.holding.release({0, 1, 2}) == {0, 1, 2}, "once more: somebody may have wanted them before"
        bare.holding.reading({0, 1, 2})
        assert bare.holding.release({0, 1, 2}) == frozenset()
    assert bare.free() == [0, 1, 2, 3]


def test_a_batch_that_takes_long_goes_on_without_leases_where_another_has_one_and_tells_it_at_the_end() -> None:
    bare = Bare()
    other = bare.taken_elsewhere(1)
    with bare.keeper.keeping(bare.holding):
        bare.keeper.turn()
        assert bare.holding.buckets == {0, 1, 2}
        assert bare.holding.valid_until > bare.clock.monotonic()
        assert bare.free() == [0, 2, 3]
        bare.holding.release({0, 1, 2})
    assert bare.queue.give_way(other, {1}) == {1}


def test_rows_that_others_wanted_of_a_lease_that_was_left_are_read_by_whoever_takes_it_over() -> None:
    bare = Bare()
    bare.queue.give_way(bare.taken_elsewhere(1), {1})
    assert bare.queue.push(bare.box, bare.jobs(1)) == 0
    with bare.keeper.keeping(bare.holding):
        bare.keeper.turn()
    assert 1 in bare.holding.release({0, 1, 2})


def test_a_bucket_that_was_refused_without_a_lease_is_read_again_under_one() -> None:
    """The other may have finished in the meantime, and knew of nobody whom to tell."""
    bare = Bare()
    bare.holding.reading({0, 1})
    assert bare.holding.give_way({1}) == {1}
    assert bare.holding.buckets == {0, 1, 2}
    bare.holding.reading({1})
    assert bare.holding.give_way({1}) == frozenset(), "now it waits"
    assert bare.holding.buckets == {0, 2}


class Between(MemoryJobQueue):
    """Lets something happen while leases are asked for, after the server has given them."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def seize(self, box: Box, jobs: Sequence[Job], *, ttl: timedelta, left: bool = False) -> Hold | None:
        hold, meanwhile = super().seize(box, jobs, ttl=ttl, left=left), self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return hold


def test_what_is_let_go_while_the_keeper_asks_for_its_leases_is_free_to_be_read_once_more() -> None:
    bare = Bare()
    bare.holding._queue = queue = Between(clock=bare.clock)
    queue.meanwhile = lambda: bare.holding.release({0, 1})
    assert bare.holding.renew(ttl=TTL) == frozenset()
    assert bare.holding.buckets == {2}
    assert queue.in_work(bare.box) == {2}
    again = queue.take([bare.box], wait=timedelta(0), ttl=TTL, share=1)
    assert again is not None
    assert again.buckets == {0, 1}


def test_what_is_secured_while_the_keeper_asks_goes_back_into_the_queue() -> None:
    bare = Bare()
    bare.holding._queue = queue = Between(clock=bare.clock)
    queue.meanwhile = bare.holding.secure
    assert bare.holding.renew(ttl=TTL) is None
    assert bare.holding.buckets == frozenset()
    assert queue.state(bare.box).length == 3
    assert queue.in_work(bare.box) == frozenset()
