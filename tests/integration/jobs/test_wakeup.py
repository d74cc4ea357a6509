"""A commit wakes the worker: here it looks for jobs by itself once an hour, and sends a heartbeat as rarely."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.app.boxes import load
from boxengine.domain.jobs import JobState
from boxengine.ports import Signal
from boxengine.ports.jobs import JobFilter
from tests.eventually import eventually
from tests.integration.jobs.handlers import ReportJob
from tests.integration.jobs.shop import NAME, Shop

RARELY = {"poll_interval": 3600, "heartbeat": 3600}
LONG = timedelta(seconds=60)
TIMES = 3
"""The first look of a worker, and that after a job's end, would find a job without being told: so there are several."""


def shop_on(request: pytest.FixtureRequest, folder: Path, server: str, **configuration: Any) -> Shop:
    return Shop(folder, request.getfixturevalue(server), jobs=RARELY, **configuration)


@pytest.fixture(params=["postgresql", "mysql and Redis"])
def told(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A shop whose workers hear of what other processes commit."""
    if request.param == "postgresql":
        shop = shop_on(request, tmp_path, "postgres_url")
    else:
        redis = {"url": request.getfixturevalue("redis_url")}
        shop = shop_on(request, tmp_path, "mysql_url", redis=redis, wakeup="redis")
    with closing(shop):
        yield shop


def test_a_job_that_another_process_commits_begins_at_once(told: Shop) -> None:
    elsewhere = load(told.path)
    with told.worker():
        for rows in range(TIMES):
            with told.engine.begin() as connection:
                job = elsewhere.create_job(connection, ReportJob, task="export", args={"rows": rows})
            told.becomes(job, JobState.SUCCEEDED)


def test_a_job_of_the_workers_own_process_needs_no_server_to_tell_it(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with closing(shop_on(request, tmp_path, "mysql_url")) as shop, shop.worker():
        for rows in range(TIMES):
            job = shop.create("export", args={"rows": rows}, delay=0.01)
            shop.becomes(job, JobState.SUCCEEDED)


@pytest.mark.parametrize("task", ["until_cancelled", "until_told"], ids=["def", "async def"])
def test_a_handler_at_work_learns_at_once_that_another_process_cancels_its_job(told: Shop, task: str) -> None:
    desk = SqlJobDesk(told.store, wakeup=load(told.path).job_wakeup)
    with told.worker():
        cancel_at_work(told, desk, task)


def test_a_cancel_in_the_workers_own_process_needs_no_server_to_tell_it(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with closing(shop_on(request, tmp_path, "mysql_url")) as shop, shop.worker():
        cancel_at_work(shop, SqlJobDesk(shop.store, wakeup=shop.boxes.job_wakeup), "until_cancelled")


def cancel_at_work(shop: Shop, desk: SqlJobDesk, task: str) -> None:
    job = shop.create(task, lease_ttl=3 * 3600)
    # A heartbeat has told it. No other one is due for an hour.
    eventually(lambda: shop.job(job)["progress"])
    assert desk.cancel(shop.box, JobFilter(ids=[job])) == 1
    shop.becomes(job, JobState.CANCELED)


def test_a_job_that_another_process_runs_again_begins_at_once(told: Shop) -> None:
    desk = SqlJobDesk(told.store, wakeup=load(told.path).job_wakeup)
    with told.worker():
        job = told.create("export", max_attempts=1)  # without its argument
        for _ in range(TIMES):
            told.becomes(job, JobState.FAILED)
            assert desk.retry(told.box, JobFilter(ids=[job])) == 1
        told.becomes(job, JobState.FAILED)
        assert told.kinds(job).count("picked") == TIMES + 1


def test_neither_a_rollback_nor_a_job_that_was_there_wakes_anybody(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    heard: list[list[Signal]] = []
    with closing(shop_on(request, tmp_path, "postgres_url")) as shop:
        shop.boxes.bells.add(NAME, lambda: heard.append([]))
        shop.create("export", idempotency_key="k")
        del heard[:]
        with closing(PostgresWakeups(shop.engine)) as listener:
            listener.wait(timedelta(0))
            with shop.engine.connect() as connection:
                shop.boxes.create_job(connection, NAME, task="export")
                connection.rollback()
            shop.create("export", idempotency_key="k")
            shop.create("export", delay=3600)
            assert heard == []
            with shop.engine.begin() as connection:
                connection.exec_driver_sql("SELECT pg_notify('boxengine', 'the next one')")
            assert listener.wait(LONG) == [Signal("the next one", None)]
