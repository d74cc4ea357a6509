"""Data that is too large for one statement of MySQL's or MariaDB's, which answer it by closing the connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from boxengine.domain.jobs import JobOutcome, JobState, Succeeded
from boxengine.errors import InvalidItem
from tests.integration.jobs.shop import Shop


@pytest.fixture
def shop(mysql_url: str, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, mysql_url)) as shop:
        yield shop


@pytest.fixture
def limit(shop: Shop) -> int:
    """Of the server, in bytes."""
    with shop.engine.connect() as connection:
        return int(connection.scalar(text("SELECT @@max_allowed_packet")))


@pytest.mark.parametrize("how", ["result", "result with a session", "checkpoint", "progress"])
def test_what_is_too_large_fails_its_own_attempt_and_the_others_go_on(shop: Shop, limit: int, how: str) -> None:
    job_id = shop.create("large", args={"how": how, "length": limit}, max_attempts=1)
    other = shop.create("export", args={"rows": 1})
    with shop.worker():
        row = shop.becomes(job_id, JobState.FAILED)
        assert f"raise max_allowed_packet on the server, which is {limit}" in row["error"]
        shop.becomes(other, JobState.SUCCEEDED)


def test_what_is_just_small_enough_is_kept(shop: Shop, limit: int) -> None:
    job_id = shop.create("large", args={"how": "result", "length": limit - 1000}, max_attempts=1)
    with shop.worker():
        assert len(shop.becomes(job_id, JobState.SUCCEEDED)["result"]) == limit - 1000


def test_ends_that_are_too_large_together_are_refused_as_a_whole_and_recorded_apart(shop: Shop, limit: int) -> None:
    for _ in range(2):
        shop.create("export", args={"rows": 1})
    jobs = shop.store.claim(shop.box, 2, worker="here")
    outcomes = [JobOutcome(job, Succeeded(result="x" * (limit * 2 // 3))) for job in jobs]
    with pytest.raises(InvalidItem, match="max_allowed_packet"):
        shop.store.record(shop.box, outcomes)
    for each in outcomes:
        assert shop.store.record(shop.box, [each]) == {each.job.id}
