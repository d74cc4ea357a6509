"""What people ask about long jobs, on real servers: pages in both directions, capped counts, and plans without a walk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.jobs import inspection
from boxengine.adapters.sql.jobs.inspection import SqlJobInspector
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.domain.jobs import JobState
from boxengine.ports.people.census import Count, Precision
from boxengine.ports.people.inspection import Towards
from boxengine.ports.people.jobs import JobSearch
from tests.conformance.jobs import BOX, SqlHarness, new
from tests.integration.jobs.test_plans import Explaining

FAILED = JobSearch(states=frozenset({JobState.FAILED}))
ROWS = 60
SEARCHES: list[tuple[JobSearch, set[int]]] = [
    (JobSearch(), set(range(1, ROWS + 1))),
    (FAILED, {5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60}),
    (JobSearch(states=frozenset({JobState.FAILED, JobState.QUEUED}), task="odd"), set(range(1, ROWS + 1, 2))),
    (JobSearch(lock_key="k1"), set(range(2, ROWS + 1, 3))),
    (JobSearch(error="100% _sure"), {10, 20, 30, 40, 50, 60}),
    (JobSearch(ids=(3, 5, 99), states=frozenset({JobState.FAILED})), {5}),
]


@pytest.fixture(params=["postgres_url", "mysql_url"])
def jobs(request: pytest.FixtureRequest) -> Iterator[SqlHarness]:
    harness = SqlHarness(request.getfixturevalue(request.param))
    harness.create(*(new("even" if n % 2 else "odd", lock_key=f"k{n % 3}") for n in range(ROWS)))
    yield harness
    harness.close()


def change(jobs: SqlHarness, which: str, **columns: object) -> None:
    sets = ", ".join(f"{name} = :{name}" for name in columns)
    with jobs.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE report_jobs SET {sets} WHERE {which}"), columns)


def test_pages_in_both_directions_have_each_job_once_and_in_order(jobs: SqlHarness) -> None:
    change(jobs, "id % 5 = 0", status="failed")
    change(jobs, "id % 10 = 0", error="I am 100% _sure")
    change(jobs, "id = 1", error="I am 100x sure")
    inspector = SqlJobInspector(SqlJobs(jobs.engine), window=7)
    for (which, expected), towards in itertools.product(SEARCHES, Towards):
        seen: list[int] = []
        start: int | None = None if towards is Towards.OLDER else 0
        while True:
            found = inspector.find(BOX, which, start=start, towards=towards, limit=4)
            page = [row["id"] for row in found.rows]
            assert page == sorted(page, reverse=True)
            assert len(page) <= 4
            seen += page if towards is Towards.OLDER else page[::-1]
            if found.searched_to is None:
                break
            start = found.searched_to
        assert seen == sorted(expected, reverse=towards is Towards.OLDER), (which, towards)


def every_hour(jobs: SqlHarness) -> datetime:
    """Job n was created n hours after the moment that is returned."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    later = (
        "timestamptz '2026-01-01 00:00Z' + id * interval '1 hour'"
        if jobs.engine.dialect.name == "postgresql"
        else "timestamp'2026-01-01 00:00:00' + INTERVAL id HOUR"
    )
    with jobs.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE report_jobs SET created_at = {later.replace(':', chr(92) + ':')}"))
    return begin


def test_jobs_are_found_and_counted_by_the_time_of_their_creation(jobs: SqlHarness) -> None:
    begin = every_hour(jobs)
    change(jobs, "id % 5 = 0", status="failed")
    inspector = SqlJobInspector(SqlJobs(jobs.engine), window=7)
    since, before = begin + timedelta(hours=20), begin + timedelta(hours=30)
    searches = {
        JobSearch(created_from=since, created_before=before): list(range(20, 30)),
        JobSearch(created_from=since, created_before=before, task="odd"): [21, 23, 25, 27, 29],
        JobSearch(created_from=since, created_before=before, states=frozenset({JobState.FAILED})): [20, 25],
        JobSearch(created_from=begin + timedelta(hours=58)): [58, 59, 60],
        JobSearch(created_before=begin + timedelta(hours=3)): [1, 2],
        JobSearch(created_from=begin + timedelta(hours=61)): [],
        JobSearch(created_before=begin): [],
    }
    for which, expected in searches.items():
        seen: list[int] = []
        start: int | None = 0
        while start is not None:
            found = inspector.find(BOX, which, start=start, towards=Towards.NEWER, limit=4)
            seen += [row["id"] for row in reversed(found.rows)]
            start = found.searched_to
        assert seen == expected, which
        counted = SqlJobInspector(SqlJobs(jobs.engine)).count(BOX, which, limit=50)
        assert counted == Count(len(expected)), which


def test_counts_are_exact_up_to_their_limit_and_then_say_so(jobs: SqlHarness) -> None:
    change(jobs, "id <= 30", status="failed")
    change(jobs, "id in (31, 32)", status="running")
    change(jobs, "id in (33, 34, 35)", waits=1, available_at=datetime(2100, 1, 1, tzinfo=UTC))
    change(jobs, "id in (36, 37)", waits=2)
    change(jobs, "id = 38", status="lost")
    change(jobs, "id = 39", waits=1)  # its time has come, and no worker has said so yet
    inspector = SqlJobInspector(SqlJobs(jobs.engine), window=7)
    found = inspector.counts(BOX, limit=25)
    assert (found.taken, found.delayed, found.blocked, found.ready) == (Count(2), Count(3), Count(2), Count(22))
    assert found.ended == {
        JobState.FAILED: Count(25, Precision.AT_LEAST),
        JobState.CANCELED: Count(0),
        JobState.LOST: Count(1),
        JobState.SUCCEEDED: Count(0),
    }
    assert (found.queued, found.total) == (Count(27), Count(29))
    assert inspector.counts(BOX, limit=20).total.precision is Precision.AT_LEAST
    assert inspector.count(BOX, FAILED, limit=25) == Count(25, Precision.AT_LEAST)
    assert inspector.count(BOX, FAILED, limit=30) == Count(30)
    assert inspector.count(BOX, JobSearch(task="odd"), limit=25).precision is Precision.AT_LEAST, "one window of seven"
    assert SqlJobInspector(SqlJobs(jobs.engine)).count(BOX, JobSearch(task="odd"), limit=50) == Count(30)


def test_succeeded_jobs_of_a_large_table_are_estimated_unless_somebody_wants_to_know(
    jobs: SqlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(jobs, "id > 10", status="succeeded")
    inspector = SqlJobInspector(SqlJobs(jobs.engine))
    assert inspector.counts(BOX, limit=5).ended[JobState.SUCCEEDED] == Count(50)
    monkeypatch.setattr(inspection, "SMALL", 59)
    about = inspector.counts(BOX, limit=20).ended[JobState.SUCCEEDED]
    assert about.precision is Precision.ABOUT
    if jobs.engine.dialect.name != "postgresql":
        assert about.number > 0, "PostgreSQL's own expectation needs an ANALYZE"
    assert inspector.counts(BOX, limit=None).ended[JobState.SUCCEEDED] == Count(50)
    assert inspector.counts(BOX, limit=None).ready == Count(10)


def test_the_lag_is_the_longest_wait_of_jobs_that_could_begin(jobs: SqlHarness) -> None:
    later = (
        "now() - interval '1 hour'"
        if jobs.engine.dialect.name == "postgresql"
        else "utc_timestamp(6) - INTERVAL 1 HOUR"
    )
    with jobs.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE report_jobs SET available_at = {later}, priority = 500 WHERE id = 40"))
        connection.execute(sa.text(f"UPDATE report_jobs SET available_at = {later}, status = 'failed' WHERE id = 41"))
    waits = SqlJobInspector(SqlJobs(jobs.engine)).counts(BOX, limit=10).waits
    assert waits is not None
    assert waits.total_seconds() >= 3600
    change(jobs, "true", status="failed")
    assert SqlJobInspector(SqlJobs(jobs.engine)).counts(BOX, limit=10).waits is None


def test_a_job_whose_time_has_come_waits_though_no_worker_has_said_so(jobs: SqlHarness) -> None:
    change(jobs, "id > 1", status="failed")
    change(jobs, "id = 1", waits=1, available_at=datetime.now(UTC) - timedelta(hours=1))
    found = SqlJobInspector(SqlJobs(jobs.engine)).counts(BOX, limit=10)
    assert (found.ready, found.delayed) == (Count(1), Count(0))
    assert found.waits is not None
    assert found.waits.total_seconds() >= 3600
    change(jobs, "id = 1", available_at=datetime.now(UTC) + timedelta(hours=1))
    found = SqlJobInspector(SqlJobs(jobs.engine)).counts(BOX, limit=10)
    assert (found.ready, found.delayed, found.waits) == (Count(0), Count(1), None)


def test_no_question_walks_over_a_large_table(jobs: SqlHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "SMALL", 0)
    series = "generate_series(1, 4000)" if jobs.engine.dialect.name == "postgresql" else "seq_1_to_4000"
    insert = "INSERT INTO report_jobs (task, args, status, finished_at) SELECT 't', '{}', 'succeeded', created_at"
    with jobs.engine.begin() as connection:
        connection.execute(
            sa.text(f"{insert} FROM report_jobs, {series} AS s WHERE report_jobs.id = 1".replace(":", "\\:"))
        )
    inspector, explained = SqlJobInspector(SqlJobs(jobs.engine), window=100), Explaining(jobs.engine)
    with explained:
        inspector.counts(BOX, limit=50)
        inspector.get(BOX, 1)
        inspector.journal(BOX, 1, limit=10)
        inspector.count(BOX, FAILED, limit=50)
        for which in (
            FAILED,
            JobSearch(ids=(1,)),
            JobSearch(idempotency_key="x"),
            JobSearch(task="t", error="x"),
            JobSearch(created_from=datetime(2026, 1, 1, tzinfo=UTC), created_before=datetime(2026, 1, 2, tzinfo=UTC)),
            replace(FAILED, created_from=datetime(2026, 1, 1, tzinfo=UTC)),
        ):
            inspector.find(BOX, which, start=2000, towards=Towards.OLDER, limit=10)
    assert len(explained.plans) >= 8
    for statement, plan in explained.plans.items():
        assert not explained.walks(plan), f"{statement}\n{plan}"
