"""What is left of a hold: only its drain lets buckets go, and a renewal under way at that moment takes nothing away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.job import Job
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
