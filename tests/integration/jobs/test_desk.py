"""Actions of people on more jobs than one transaction takes, while workers go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.jobs import desk
from boxengine.domain.jobs import JobState
from boxengine.ports.jobs import JobFilter
from tests.conformance.jobs import BOX, SqlHarness, new

SUCCEEDED, QUEUED = JobFilter(states=[JobState.SUCCEEDED]), JobFilter(states=[JobState.QUEUED])


@pytest.fixture(params=["postgres_url", "mysql_url"])
def jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlHarness]:
    monkeypatch.setattr(desk, "AT_ONCE", 2)
    harness = SqlHarness(request.getfixturevalue(request.param))
    yield harness
    harness.close()


def before_each_transaction(jobs: SqlHarness, change: str) -> None:
    """What others do to the jobs meanwhile."""

    def others(_connection: sa.Connection) -> None:
        with jobs.engines[1].begin() as connection:
            connection.execute(sa.text(f"UPDATE report_jobs SET {change}"))

    sa.event.listen(jobs.engine, "begin", others)


@pytest.mark.parametrize("by_ids", [False, True])
def test_a_retry_queues_each_job_once_though_those_before_it_have_ended_again(jobs: SqlHarness, by_ids: bool) -> None:
    ids = jobs.create(*(new() for _ in range(6)))
    which = JobFilter(ids=ids) if by_ids else SUCCEEDED
    before_each_transaction(jobs, "status = 'succeeded'")
    assert jobs.desk.retry(BOX, which) == len(ids)
    assert [jobs.kinds(each) for each in ids] == [["queued", "requeue"]] * len(ids)


def test_a_cancellation_ends_each_job_once_though_those_before_it_are_queued_again(jobs: SqlHarness) -> None:
    ids = jobs.create(*(new() for _ in range(6)))
    before_each_transaction(jobs, "status = 'queued', finished_at = NULL")
    assert jobs.desk.cancel(BOX, QUEUED) == len(ids)
    assert [jobs.kinds(each) for each in ids] == [["queued", "canceled"]] * len(ids)
