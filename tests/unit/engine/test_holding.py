"""What is left of a hold: only its drain lets buckets go, and a renewal under way at that moment takes nothing away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.job import Job
from boxengine.engine.delivering.attended import Attended
from boxengine.engine.delivering.holding import Holding
from boxengine.engine.delivering.keeper import LeaseKeeper
from boxengine.errors import QueueUnavailable
from boxengine.ports import Hold
from tests.unit.engine.bench import make_box, usual

TTL = timedelta(seconds=4)


class Meddled(MemoryJobQueue):
    """Lets something happen right after the server has let go of a bucket, before its holder knows."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        wanted = super().release(hold, buckets)
        self.meanwhile()
        return wanted

    def hand_back(self, hold: Hold, jobs: Sequence[Job]) -> None:
        super().hand_back(hold, jobs)
        self.meanwhile()


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
