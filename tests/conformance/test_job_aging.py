"""Jobs that have waited for long, and when the attempt before started; over memory, PostgreSQL and MariaDB."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.domain.jobs import ClaimedJob, Requeued, Succeeded
from boxengine.ports.jobs import JobStore
from tests.conformance.jobs import BOX, JobHarness, SqlHarness, claim, end, new

assert BOX.aging is not None
AGED = BOX.aging.total_seconds() + 1
AT_ONCE = Requeued(pause=timedelta(0))


def by_age(jobs: JobHarness, count: int, *, oldest: int = 1) -> list[int]:
    return [job.id for job in jobs.store.claim(BOX, count, worker="w", oldest=oldest)]


def test_a_job_that_has_waited_for_longer_than_the_aging_goes_before_more_urgent_ones(jobs: JobHarness) -> None:
    (older,) = jobs.create(new(priority=200))
    jobs.pass_time(1)
    (old,) = jobs.create(new(priority=150))
    jobs.pass_time(AGED)
    urgent, second, third = jobs.create(*(new(priority=1) for _ in range(3)))
    (first,) = jobs.store.claim(BOX, 1, worker="w", oldest=1)
    assert (first.id, first.for_age) == (older, True)
    assert by_age(jobs, 3) == [old, urgent, second]
    assert by_age(jobs, 3) == [third]


def test_of_those_that_have_waited_for_long_the_longest_wait_goes_first(jobs: JobHarness) -> None:
    now = datetime.now(UTC) if isinstance(jobs, SqlHarness) else jobs.row(jobs.create(new())[0])["created_at"]
    claim(jobs)
    late, early = jobs.create(
        new(priority=5, available_at=now - timedelta(hours=1)), new(priority=9, available_at=now - timedelta(hours=2))
    )
    jobs.store.promote(BOX)
    assert by_age(jobs, 1) == [early]
    assert by_age(jobs, 1) == [late]


def test_a_job_that_has_not_waited_for_so_long_does_not_overtake(jobs: JobHarness) -> None:
    young, urgent = jobs.create(new(priority=200), new(priority=1))
    assert by_age(jobs, 1) == [urgent]
    assert by_age(jobs, 1) == [young]


def test_without_aging_priority_alone_decides(jobs: JobHarness) -> None:
    store: JobStore = SqlJobs(jobs.engine) if isinstance(jobs, SqlHarness) else jobs.store
    (old,) = jobs.create(new(priority=200))
    jobs.pass_time(100 * AGED)
    (urgent,) = jobs.create(new(priority=1))
    claimed = store.claim(replace(BOX, aging=None), 2, worker="w", oldest=2)
    assert [job.id for job in claimed] == [urgent, old]


def test_a_claim_brings_as_many_jobs_with_old_ones_as_without(jobs: JobHarness) -> None:
    made = jobs.create(*(new() for _ in range(6)))
    jobs.pass_time(AGED)
    assert sorted(by_age(jobs, 4, oldest=2)) == made[:4]


def test_an_old_job_with_a_free_lock_key_goes_before_urgent_ones_too(jobs: JobHarness) -> None:
    held, behind, free = jobs.create(new(lock_key="a"), new(lock_key="a"), new(priority=200, lock_key="b"))
    assert [job.id for job in claim(jobs, 1)] == [held]
    jobs.pass_time(AGED)
    urgent, second, last = jobs.create(*(new(priority=1) for _ in range(3)))
    # The one whose key is held is set aside, and a job that can run takes its place.
    assert by_age(jobs, 1) == [urgent]
    assert by_age(jobs, 1) == [free]
    assert claim(jobs)[0].id == second
    assert jobs.row(last)["status"] == "running"
    assert jobs.row(behind)["status"] == "queued"


def test_a_job_that_has_waited_for_long_behind_a_busy_key_has_its_turn_too(jobs: JobHarness) -> None:
    holder = jobs.one(new(lock_key="a"))
    older, old = jobs.create(new(priority=200, lock_key="a"), new(priority=150, lock_key="a"))
    jobs.pass_time(AGED)
    urgent, last = jobs.create(*(new(priority=1, lock_key="a") for _ in range(2)))
    assert claim(jobs) == []
    for wanted, oldest in ((urgent, 0), (older, 1), (last, 0), (old, 0)):
        assert end(jobs, holder, Succeeded())
        (holder,) = jobs.store.claim(BOX, 3, worker="w", oldest=oldest)
        assert holder.id == wanted


def test_a_retried_job_knows_when_the_attempt_before_started(jobs: JobHarness) -> None:
    first = jobs.one()
    again = given_back(jobs, first)
    assert (first.previous_start, again.attempt, again.previous_start) == (None, 1, None)
    for attempt in (2, 3):
        started = picked(jobs, first.id)
        assert end(jobs, again, AT_ONCE)
        jobs.pass_time(5)
        (again,) = claim(jobs)
        assert (again.attempt, again.previous_start) == (attempt, started)
        again = given_back(jobs, again)
        assert (again.attempt, again.previous_start) == (attempt, started)


def given_back(jobs: JobHarness, job: ClaimedJob) -> ClaimedJob:
    """Claimed once more: nobody had begun it, so that was no attempt."""
    jobs.store.give_back(BOX, [job.held])
    (again,) = claim(jobs)
    return again


def picked(jobs: JobHarness, job_id: int) -> datetime:
    """When it was claimed last, as its journal has it."""
    moments: list[datetime] = [event["ts"] for event in jobs.row(job_id)["events"] if event["kind"] == "picked"]
    return moments[-1]


def test_a_job_that_was_taken_from_a_silent_worker_begins_its_wait_anew(jobs: JobHarness) -> None:
    """It ran for three hours and waits for a second: it has not waited for three hours."""
    jobs.one(new(lease_ttl=timedelta(hours=3)))
    jobs.pass_time(3 * 3600 + 1)
    assert jobs.store.reap(BOX).requeued
    lag = jobs.store.lag(BOX)
    assert lag is not None
    assert lag < timedelta(minutes=1)
    assert jobs.store.backlog(BOX, limit=10).waits < timedelta(minutes=1)


def test_the_lag_is_the_wait_of_the_oldest_job_that_can_be_claimed(jobs: JobHarness) -> None:
    assert jobs.store.lag(BOX) is None
    jobs.create(new(delay=timedelta(hours=1)), new(priority=200))
    jobs.pass_time(60)
    jobs.create(new(priority=1))
    lag = jobs.store.lag(BOX)
    assert lag is not None
    assert lag >= timedelta(seconds=60)
    claim(jobs)
    assert jobs.store.lag(BOX) is None
