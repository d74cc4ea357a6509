"""Threads that belong to no box, in a worker on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from boxengine.domain.jobs import JobState
from tests.integration.jobs.shop import Shop


@pytest.mark.parametrize("server", ["postgres_url", "mysql_url"])
def test_a_shared_thread_runs_what_waits_while_the_boxs_own_threads_are_at_work(
    server: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    often = {"heartbeat": 0.1, "poll_interval": 0.02, "reaper_period": 0.1}
    shop = Shop(tmp_path, request.getfixturevalue(server), jobs={**often, "shared_threads": 1})
    try:
        jobs = [shop.guarded() for _ in range(shop.box.concurrency + 1)]
        with shop.worker():
            for job in jobs:
                assert shop.gates[f"begun {job}"].wait(60)
            for job in jobs:
                shop.gates[f"go {job}"].set()
            for job in jobs:
                shop.becomes(job, JobState.SUCCEEDED)
        assert {tuple(shop.kinds(job)) for job in jobs} == {("queued", "picked", "done")}
    finally:
        shop.close()
