"""Which buckets may be begun without a lease: those that a writer has just named, and that nobody works on or died of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.queue import MemoryJobQueue
from boxengine.domain.box import Box, Storage
from boxengine.domain.job import ANY_ID, Job
from boxengine.engine.delivering.holds.vacancies import Vacancies
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable
from tests.unit.engine.bench import make_box, usual

TTL = timedelta(seconds=4)
LOG = replace(make_box(bucket_size=8), storage=Storage.LOG)


def named(*buckets: int) -> list[Job]:
    """Jobs as the poller makes them of what writers have named."""
    return [Job(bucket, 0, ANY_ID, named=True) for bucket in buckets]


def locks_decide(box: Box) -> bool:
    return box.storage is Storage.LOG


class Case:
    """A worker that is old enough, and has looked."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = MemoryJobQueue(clock=self.clock)
        self.vacancies = Vacancies(self.queue, length=usual(TTL), clock=self.clock, locks_decide=locks_decide)
        self.vacancies.take(LOG, named(1))
        self.clock.advance(TTL * TIMING.by_lease)
        self.vacancies.look()

    def take(self, *buckets: int, box: Box = LOG) -> bool:
        return self.vacancies.take(box, named(*buckets))


def test_buckets_that_writers_have_named_and_nobody_works_on_are_begun_without_leases() -> None:
    assert Case().take(1, 2)


def test_a_worker_that_has_just_started_works_by_leases_alone() -> None:
    case = Case()
    young = Vacancies(case.queue, length=usual(TTL), clock=case.clock, locks_decide=locks_decide)
    young.take(LOG, named(1))
    young.look()
    assert not young.take(LOG, named(1))
    case.clock.advance(TTL * TIMING.by_lease)
    young.look()
    assert young.take(LOG, named(1))


def test_what_a_look_at_the_table_has_found_is_begun_under_a_lease() -> None:
    case = Case()
    found = [Job(2, 0, ANY_ID)]
    assert not case.vacancies.take(LOG, found)
    assert not case.vacancies.take(LOG, [*named(1), *found])


def test_a_bucket_of_which_a_worker_died_is_begun_under_a_lease() -> None:
    case = Case()
    assert case.queue.seize(LOG, named(3), ttl=timedelta(seconds=1)) is not None
    case.clock.advance(timedelta(seconds=2))
    case.vacancies.look()
    assert not case.take(3)
    assert not case.take(1, 3)
    assert case.take(1)


def test_workers_of_sbmt_outbox_which_know_leases_alone_are_not_passed_by_in_tables() -> None:
    case = Case()
    table = make_box(bucket_size=8)
    for _ in range(2):
        assert not case.take(1, box=table)
        case.vacancies.look()


def test_a_bucket_that_waits_after_a_failure_waits_though_writers_name_it() -> None:
    case = Case()
    hold = case.queue.seize(LOG, named(1), ttl=TTL)
    assert hold is not None
    case.queue.leave(hold, [1])
    case.vacancies.look()
    assert not case.take(1)
    assert case.take(2)


def test_a_bucket_is_taken_until_it_is_done_or_a_look_finds_it_vacant() -> None:
    case = Case()
    assert case.take(1)
    assert not case.take(1)
    case.vacancies.free(LOG, {1})
    assert case.take(1)
    case.vacancies.look()
    assert case.take(1)


def away(*_: object) -> list[int]:
    raise QueueUnavailable("no answer")


@pytest.mark.parametrize("look", [lambda case: None, lambda case: case.vacancies.look()], ids=["no look", "outage"])
def test_what_was_known_a_lease_ago_counts_for_nothing(look: Callable[[Case], None]) -> None:
    case = Case()
    case.queue.unattended = away  # type: ignore[method-assign, assignment]
    case.clock.advance(TTL - timedelta(seconds=1))
    look(case)
    assert case.take(1)
    case.clock.advance(timedelta(seconds=1))
    look(case)
    assert not case.take(2)


def noting(case: Case, *, seconds: float = 0.0) -> list[str]:
    """The boxes that the case will look at, each of which takes so long."""
    asked: list[str] = []

    def in_work(box: Box) -> frozenset[int]:
        asked.append(box.name)
        case.clock.advance(timedelta(seconds=seconds))
        return frozenset()

    case.queue.in_work = in_work  # type: ignore[method-assign]
    return asked


def test_boxes_of_which_nothing_was_named_lately_are_not_looked_at() -> None:
    case = Case()
    asked = noting(case)
    case.vacancies.look()
    assert asked == [LOG.name]
    case.clock.advance(timedelta(seconds=TIMING.asked_lately))
    case.vacancies.look()
    assert asked == [LOG.name]
    case.take(1)
    case.vacancies.look()
    assert asked == [LOG.name] * 2


def test_looks_that_take_long_leave_the_renewals_their_turn_and_go_on_at_the_next() -> None:
    case = Case()
    for name in ("b", "c"):
        case.take(1, box=replace(LOG, name=name))
    asked = noting(case, seconds=2 * TIMING.unnoticed)
    for _ in range(4):
        case.vacancies.look()
    assert asked == ["b", "c", LOG.name, "b"]
