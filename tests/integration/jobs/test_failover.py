"""A failover to a server that lacks the last commits: a claim is gone, and the worker that has it knows nothing of that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boxengine.domain.jobs import Beat, Succeeded
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
