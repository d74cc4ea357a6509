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
from boxengine.engine.delivering.vacancies import Vacancies
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable
from tests.unit.engine.bench import make_box, usual

TTL = timedelta(seconds=4)
LOG = replace(make_box(bucket_size=8), storage=Storage.LOG)


def named(*buckets: int) -> list[Job]:
    """Jobs as the poller makes them of what writers have named."""
    return [Job(bucket, 0, ANY_ID, named=True) for bucket in buckets]


class Case:
    """A worker that is old enough, and has looked."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.queue = MemoryJobQueue(clock=self.clock)
        self.vacancies = Vacancies(self.queue, length=usual(TTL), clock=self.clock)
        self.vacancies.has(LOG, named(1))
        self.clock.advance(TTL * TIMING.by_lease)
        self.vacancies.look()

    def has(self, *buckets: int, box: Box = LOG) -> bool:
        return self.vacancies.has(box, named(*buckets))


def test_buckets_that_writers_have_named_and_nobody_works_on_are_begun_without_leases() -> None:
    assert Case().has(1, 2)


def test_a_worker_that_has_just_started_works_by_leases_alone() -> None:
    case = Case()
    young = Vacancies(case.queue, length=usual(TTL), clock=case.clock)
    young.has(LOG, named(1))
    young.look()
    assert not young.has(LOG, named(1))
    case.clock.advance(TTL * TIMING.by_lease)
    young.look()
    assert young.has(LOG, named(1))


def test_what_a_look_at_the_table_has_found_is_begun_under_a_lease() -> None:
    case = Case()
    found = [Job(2, 0, ANY_ID)]
    assert not case.vacancies.has(LOG, found)
    assert not case.vacancies.has(LOG, [*named(1), *found])


def test_a_bucket_of_which_a_worker_died_is_begun_under_a_lease() -> None:
    case = Case()
    assert case.queue.seize(LOG, named(3), ttl=timedelta(seconds=1)) is not None
    case.clock.advance(timedelta(seconds=2))
    case.vacancies.look()
    assert not case.has(3)
    assert not case.has(1, 3)
    assert case.has(1)


def test_workers_of_sbmt_outbox_which_know_leases_alone_are_not_passed_by_in_tables() -> None:
    case = Case()
    table = make_box(bucket_size=8)
    for _ in range(2):
        assert not case.has(1, box=table)
        case.vacancies.look()


def away(*_: object) -> frozenset[int]:
    raise QueueUnavailable("no answer")


@pytest.mark.parametrize("look", [lambda case: None, lambda case: case.vacancies.look()], ids=["no look", "outage"])
def test_what_was_known_a_lease_ago_counts_for_nothing(look: Callable[[Case], None]) -> None:
    case = Case()
    case.queue.in_work = away  # type: ignore[method-assign, assignment]
    case.clock.advance(TTL - timedelta(seconds=1))
    look(case)
    assert case.has(1)
    case.clock.advance(timedelta(seconds=1))
    look(case)
    assert not case.has(1)


def test_boxes_of_which_nothing_was_named_lately_are_not_looked_at() -> None:
    case = Case()
    asked: list[str] = []

    def in_work(box: Box) -> frozenset[int]:
        asked.append(box.name)
        return frozenset()

    case.queue.in_work = in_work  # type: ignore[method-assign]
    case.vacancies.look()
    assert asked == [LOG.name]
    case.clock.advance(timedelta(seconds=TIMING.asked_lately))
    case.vacancies.look()
    assert asked == [LOG.name]
    case.has(1)
    case.vacancies.look()
    assert asked == [LOG.name] * 2
