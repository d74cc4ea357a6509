"""A table of jobs that somebody has locked: nothing of boxengine's own waits for it without a limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.app.jobs.connecting import connect_jobs
from boxengine.domain.jobs import Beat, JobOutcome, Succeeded
from boxengine.errors import StoreConflict
from tests.integration.jobs.shop import NAME, Shop
from tests.integration.locking import impatient, locked


@pytest.fixture(params=["postgres_url", "mysql_url"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    opened = Shop(tmp_path, impatient(request.getfixturevalue(request.param)))
    yield opened
    opened.close()


@pytest.fixture
def store(shop: Shop) -> Iterator[SqlJobs]:
    """As a worker connects to it."""
    opened = connect_jobs(shop.boxes.resolved.settings, shop.boxes.resolved.jobs)
    yield opened
    opened.close()


def test_claims_heartbeats_and_ends_give_up_and_go_on_once_it_is_free(shop: Shop, store: SqlJobs) -> None:
    first, second = shop.guarded(), shop.guarded()
    (job,) = store.claim(shop.box, 1, worker="w")
    with locked(shop.engine, shop.box.table):
        for ask in (
            lambda: store.claim(shop.box, 1, worker="w"),
            lambda: store.beat(shop.box, [Beat(job.held)]),
            lambda: store.record(shop.box, [JobOutcome(job, Succeeded())]),
            lambda: store.promote(shop.box),
            lambda: store.lag(shop.box),
        ):
            with pytest.raises(StoreConflict):
                ask()
    assert store.beat(shop.box, [Beat(job.held)]) == {first: False}
    assert store.record(shop.box, [JobOutcome(job, Succeeded())]) == {first}
    assert [each.id for each in store.claim(shop.box, 1, worker="w")] == [second]


def test_handlers_on_postgresql_wait_for_locks_as_long_as_they_like(postgres_url: str, tmp_path: Path) -> None:
    shop = Shop(tmp_path, postgres_url)
    store = connect_jobs(shop.boxes.resolved.settings, shop.boxes.resolved.jobs)
    shop.guarded()
    (job,) = store.claim(shop.boxes.resolved.jobs[NAME].box, 1, worker="w")
    unit = store.unit(shop.box, job)
    assert unit.session.scalar(sa.text("SHOW lock_timeout")) == "0"
    unit.close()
    store.close()
    shop.close()
