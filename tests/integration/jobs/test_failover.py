"""A failover to a server that lacks the last commits: a claim is gone, or a checkpoint, and the worker knows nothing of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from boxengine.domain.jobs import Beat, Requeued, Succeeded
from boxengine.errors import CheckpointLost
from tests.conformance.jobs import BOX, SqlHarness, claim, end, new


@pytest.fixture(params=["postgres_url", "mysql_url"])
def jobs(request: pytest.FixtureRequest) -> Iterator[SqlHarness]:
    harness = SqlHarness(request.getfixturevalue(request.param))
    yield harness
    harness.close()


def lose_the_claims(jobs: SqlHarness) -> None:
    """The rows are what they were before."""
    jobs._run(
        "UPDATE report_jobs SET status = 'queued', attempt = 0, token = 0, "
        "holds = NULL, worker = NULL, lease_expires_at = NULL"
    )


@pytest.mark.parametrize("key", [None, "k"])
def test_who_holds_a_claim_that_is_lost_can_write_nothing_once_the_job_is_claimed_again(
    jobs: SqlHarness, key: str | None
) -> None:
    jobs.create(new(lock_key=key))
    (before,) = claim(jobs)
    lose_the_claims(jobs)
    (after,) = jobs.other.claim(BOX, 1, worker="other")
    assert jobs.store.beat(BOX, [Beat(before.held)]) == {}
    unit = jobs.store.unit(BOX, before)
    jobs.write(unit.session, "of the claim that is lost")
    assert unit.checkpoint({"half": True}) is False
    unit.close()
    assert end(jobs, before, Succeeded()) is False
    assert jobs.other.beat(BOX, [Beat(after.held)]) == {after.id: False}
    assert list(jobs.effects()) == []


def test_a_token_rises_though_the_clock_was_set_back(jobs: SqlHarness) -> None:
    jobs.create(new())
    jobs._run(f"UPDATE report_jobs SET token = {2**62}")
    assert [job.token for job in claim(jobs)] == [2**62 + 1]


@contextmanager
def lost_commits(jobs: SqlHarness) -> Iterator[None]:
    """What is committed meanwhile is gone afterwards, as on a server that never had it."""
    tables = ("report_jobs", "effects")
    for table in tables:
        jobs._run(f"CREATE TABLE {table}_of_the_standby AS SELECT * FROM {table}")
    yield
    for table in tables:
        jobs._run(f"DELETE FROM {table}")
        jobs._run(f"INSERT INTO {table} SELECT * FROM {table}_of_the_standby")


def test_after_a_lost_checkpoint_nothing_that_follows_it_is_kept(jobs: SqlHarness) -> None:
    """Or the job would end well, and what its session had written with that checkpoint would be missing for ever."""
    job = jobs.one()
    unit = jobs.store.unit(BOX, job)
    jobs.write(unit.session, "first")
    assert unit.checkpoint({"done": 1})
    with lost_commits(jobs):
        jobs.write(unit.session, "second")
        assert unit.checkpoint({"done": 2})
    assert jobs.store.beat(BOX, [Beat(job.held)]) == {job.id: False}, "the claim is not lost"
    for _ in range(2):
        jobs.write(unit.session, "third")
        with pytest.raises(CheckpointLost, match="the next attempt goes on from the checkpoint that it has"):
            unit.checkpoint({"done": 3})
    jobs.write(unit.session, "fourth")
    with pytest.raises(CheckpointLost):
        unit.end(Succeeded())
    unit.close()
    assert list(jobs.effects()) == ["first"]
    assert jobs.row(job.id)["checkpoint"] == {"done": 1}
    assert end(jobs, job, Requeued(pause=timedelta(0), error="lost"))
    (again,) = claim(jobs)
    assert again.checkpoint == {"done": 1}
    unit = jobs.store.unit(BOX, again)
    jobs.write(unit.session, "second")
    assert unit.checkpoint({"done": 2})
    jobs.write(unit.session, "third")
    assert unit.end(Succeeded())
    assert list(jobs.effects()) == ["first", "second", "third"]


def test_a_lost_checkpoint_without_a_session_is_made_up_for_by_the_next(jobs: SqlHarness) -> None:
    unit = jobs.store.unit(BOX, jobs.one())
    with lost_commits(jobs):
        assert unit.checkpoint({"done": 1})
    assert unit.checkpoint({"done": 2})
    jobs.write(unit.session, "the end")
    assert unit.end(Succeeded())
    assert list(jobs.effects()) == ["the end"]
