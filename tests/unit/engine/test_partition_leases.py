"""Which worker polls a partition, and how often the coordinator is asked for that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.leases import MemoryLeases
from boxengine.engine.polling.partition_leases import MARGIN, RENEWED, PartitionLeases
from boxengine.errors import QueueUnavailable
from boxengine.ports import LeaseName
from tests.unit.engine.bench import make_box

BOX = make_box()
TTL = timedelta(seconds=4)


class Counted(MemoryLeases):
    """Counts how often it is asked for a lease; may be away."""

    asked = 0
    away = False

    def acquire(self, name: LeaseName, token: str, *, ttl: timedelta) -> bool:
        if self.away:
            raise QueueUnavailable("gone")
        self.asked += 1
        return super().acquire(name, token, ttl=ttl)


class Workers:
    """Two workers that poll one partition."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.coordinator = Counted(clock=self.clock)
        self.first, self.second = (self.worker(token) for token in ("first", "second"))

    def worker(self, token: str, *, partitions: int = 4) -> PartitionLeases:
        """One that divides boxes into so many partitions."""
        return PartitionLeases(self.coordinator, token, partitions=lambda _box: partitions, ttl=TTL, clock=self.clock)

    def polls(self, worker: PartitionLeases, *, after: float = 0.0) -> bool:
        """One poll, ``after`` so much of a lease's time."""
        self.clock.advance(TTL * after)
        if not worker.hold(BOX, 0):
            return False
        worker.keep(BOX, 0)
        return True


@pytest.fixture
def workers() -> Workers:
    return Workers()


def test_polls_that_follow_each_other_ask_once(workers: Workers) -> None:
    assert [workers.polls(workers.first, after=RENEWED / 4) for _ in range(4)] == [True] * 4
    assert workers.coordinator.asked == 1


def test_a_lease_is_renewed_behind_the_poll_that_finds_it_half_over(workers: Workers) -> None:
    workers.polls(workers.first)
    workers.clock.advance(TTL * RENEWED)
    assert workers.first.hold(BOX, 0)
    assert workers.coordinator.asked == 1, "the poll does not wait for it"
    workers.first.keep(BOX, 0)
    assert workers.coordinator.asked == 2
    assert not workers.polls(workers.second, after=0.99), "it lasts from the renewal on"


def test_a_poll_asks_first_where_the_lease_is_nearly_over(workers: Workers) -> None:
    workers.polls(workers.first)
    workers.clock.advance(TTL * MARGIN)
    assert workers.first.hold(BOX, 0)
    assert workers.coordinator.asked == 2


def test_a_lease_that_another_worker_has_is_not_kept(workers: Workers) -> None:
    workers.polls(workers.first)
    assert workers.polls(workers.second, after=1.01)
    assert not workers.polls(workers.first)
    workers.coordinator.flush()
    assert workers.polls(workers.first)


def test_a_renewal_without_an_answer_is_left_to_the_next_poll(workers: Workers) -> None:
    workers.polls(workers.first)
    workers.coordinator.away = True
    assert workers.polls(workers.first, after=RENEWED)
    workers.clock.advance(TTL * MARGIN)
    with pytest.raises(QueueUnavailable):
        workers.first.hold(BOX, 0)
    workers.coordinator.away = False
    assert workers.polls(workers.first)


def test_what_is_released_is_there_for_others_at_once(workers: Workers) -> None:
    workers.polls(workers.first)
    workers.first.release_all()
    assert workers.polls(workers.second)


def test_a_worker_with_another_number_of_partitions_polls_beside_the_others(workers: Workers) -> None:
    other = workers.worker("other", partitions=3)
    assert workers.polls(workers.first)
    assert workers.polls(other), "its partition has other buckets"
    other.release_all()
    assert not workers.polls(workers.second), "it has not freed the first worker's lease"
