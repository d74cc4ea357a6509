"""Handlers that are ``async def``, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from boxengine.domain.jobs import JobState
from boxengine.ports.jobs import JobFilter
from tests.eventually import eventually
from tests.integration.jobs.shop import Shop


@pytest.fixture(params=["postgres_url", "mysql_url"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, request.getfixturevalue(request.param))) as shop:
        yield shop


def test_what_a_coroutines_session_writes_commits_with_its_checkpoints_and_its_end(shop: Shop) -> None:
    job = shop.create("in_steps")
    with shop.worker():
        row = shop.becomes(job, JobState.SUCCEEDED)
    assert row["result"] == ["1.0", "1.1", "2.2", "the end"]
    assert (row["attempt"], row["checkpoint"]) == (2, 3)


def test_a_cancel_ends_a_coroutine_that_waits_and_other_jobs_get_its_connection(shop: Shop) -> None:
    waiting = [shop.create("until_told") for _ in range(3)]
    with shop.worker():
        for job in waiting:
            eventually(partial(_waits, shop, job))
        assert shop.desk.cancel(shop.box, JobFilter(ids=waiting)) == 3
        for job in waiting:
            shop.becomes(job, JobState.CANCELED)
        for job in [shop.create(task, args={"rows": 1}) for task in ("export", "in_steps") * 2]:
            shop.becomes(job, JobState.SUCCEEDED)


def _waits(shop: Shop, job: int) -> bool:
    return bool(shop.job(job)["progress"] == {"waiting": True})
