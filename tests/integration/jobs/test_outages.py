"""What a worker says while the database takes nothing about its jobs: that it does not work, once, and that it works again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.domain.jobs import JobState
from boxengine.errors import StoreUnavailable
from tests.eventually import eventually
from tests.integration.jobs.shop import Shop

TRIES = 4


@pytest.fixture
def shop(postgres_url: str, tmp_path: Path) -> Iterator[Shop]:
    with closing(Shop(tmp_path, postgres_url)) as shop:
        yield shop


@pytest.mark.parametrize("write", ["record", "beat"])
def test_an_outage_is_told_once_and_is_over_when_the_same_succeeds(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, write: str
) -> None:
    real, calls = getattr(SqlJobs, write), list[None]()

    def refusing(*arguments: Any) -> Any:
        calls.append(None)
        if len(calls) <= TRIES:
            raise StoreUnavailable("the server is away")
        return real(*arguments)

    monkeypatch.setattr(SqlJobs, write, refusing)
    caplog.set_level("INFO", "boxengine")
    with shop.worker():
        job_id = shop.guarded()
        shop.gates[f"begun {job_id}"].wait(60)
        if write == "record":
            shop.gates[f"go {job_id}"].set()
        eventually(lambda: len(calls) > TRIES)
        shop.gates[f"go {job_id}"].set()
        shop.becomes(job_id, JobState.SUCCEEDED)
        eventually(lambda: "works again" in caplog.text)
    told = [record.getMessage() for record in caplog.records]
    assert len([each for each in told if "does not work" in each]) == 1
    assert len([each for each in told if "works again" in each]) == 1
