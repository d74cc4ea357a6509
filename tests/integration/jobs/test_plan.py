"""Long jobs on real servers, run by the worker that applications run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from boxengine.domain.jobs import JobState
from boxengine.ports.jobs import JobFilter
from tests.eventually import eventually
from tests.integration.jobs.shop import NAME, Shop
from tests.servers.pgbouncer import PgBouncer


@pytest.fixture(params=["postgresql", "mysql"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    name = "postgres_url" if request.param == "postgresql" else "mysql_url"
    shop = Shop(tmp_path, request.getfixturevalue(name))
    yield shop
    shop.close()


def test_trigger_status_cancel(shop: Shop) -> None:
    job = shop.create("until_cancelled")
    assert shop.job(job)["status"] == "queued"
    with shop.worker():
        shop.becomes(job, JobState.RUNNING)
        eventually(lambda: shop.job(job)["progress"] == {"waiting": True})
        assert shop.desk.cancel(shop.box, JobFilter(ids=[job])) == 1
        row = shop.becomes(job, JobState.CANCELED)
    assert row["finished_at"] is not None
    assert shop.kinds(job) == ["queued", "picked", "canceled"]


def test_claim_heartbeat_done_succeeded(shop: Shop) -> None:
    job = shop.guarded()
    with shop.worker():
        assert shop.gates[f"begun {job}"].wait(60)
        claimed = shop.job(job)
        eventually(lambda: shop.job(job)["heartbeat_at"] > claimed["heartbeat_at"])
        assert shop.job(job)["lease_expires_at"] > claimed["lease_expires_at"]
        shop.gates[f"go {job}"].set()
        row = shop.becomes(job, JobState.SUCCEEDED)
    assert (row["result"], row["attempt"], row["lease_expires_at"]) == ("by attempt 1", 1, None)
    assert shop.kinds(job) == ["queued", "picked", "done"]


def test_two_workers_one_lock_key_one_runs_the_other_waits(shop: Shop) -> None:
    first, second = shop.guarded(lock_key="k"), shop.guarded(lock_key="k")
    other = shop.guarded()
    with shop.worker(), shop.worker():
        assert shop.gates[f"begun {first}"].wait(60)
        assert shop.gates[f"begun {other}"].wait(60)
        eventually(lambda: shop.desk.stat(shop.box).blocked == 1)
        assert (shop.job(second)["status"], shop.job(second)["attempt"]) == ("queued", 0)
        shop.gates[f"go {first}"].set()
        assert shop.gates[f"begun {second}"].wait(60)
        assert shop.job(first)["status"] == "succeeded"
        for job in (second, other):
            shop.gates[f"go {job}"].set()
        shop.becomes(second, JobState.SUCCEEDED)


def test_expired_lease_queued_again(shop: Shop) -> None:
    job = shop.guarded()
    (dead,) = shop.store.claim(shop.box, 1, worker="of a process that died")
    with shop.engine.begin() as connection:
        connection.execute(text("UPDATE report_jobs SET lease_expires_at = created_at"))
    with shop.worker():
        assert shop.gates[f"begun {job}"].wait(60)
        shop.gates[f"go {job}"].set()
        row = shop.becomes(job, JobState.SUCCEEDED)
    assert row["result"] == "by attempt 2"
    assert row["token"] > dead.token
    assert shop.kinds(job) == ["queued", "picked", "requeue", "picked", "done"]


def test_a_job_commits_with_the_business_data_and_its_handlers_writes_with_its_end(shop: Shop) -> None:
    with shop.engine.connect() as connection:
        shop.boxes.create_job(connection, NAME, task="export", args={"rows": 1})
        connection.rollback()
    job = shop.create("export", args={"rows": 7})
    with shop.worker():
        row = shop.becomes(job, JobState.SUCCEEDED)
    assert (row["result"], row["progress"]) == ({"rows": 7}, {"done": 1})
    assert shop.desk.stat(shop.box).finished == {JobState.SUCCEEDED: 1}
    with shop.engine.begin() as connection:
        assert list(connection.scalars(text("SELECT body FROM effects"))) == [str(job)]


def test_a_delayed_job_begins_when_it_is_due(shop: Shop) -> None:
    job = shop.create("export", args={"rows": 1}, delay=timedelta(seconds=0.3))
    with shop.worker():
        row = shop.becomes(job, JobState.SUCCEEDED)
    assert row["started_at"] - row["created_at"] >= timedelta(seconds=0.29)


def test_retention_takes_the_journal_along(shop: Shop) -> None:
    job = shop.create("export", args={"rows": 1})
    kept = shop.create("export", args={"rows": 1}, delay=3600)
    shop.desk.cancel(shop.box, JobFilter(ids=[job]))
    with shop.engine.begin() as connection:
        connection.execute(text("UPDATE report_jobs SET finished_at = '2026-01-01' WHERE finished_at IS NOT NULL"))
    assert shop.store.delete_finished(shop.box) == 1
    with shop.engine.begin() as connection:
        assert set(connection.scalars(text("SELECT job_id FROM report_jobs_events"))) == {kept}


def test_a_batch_of_deletions_counts_what_must_stay_for_a_follower_unless_nothing_goes(shop: Shop) -> None:
    """Or a single such job would make full batches look like the last ones."""
    first, other = (shop.create("export", args={"rows": 1}, delay=3600) for _ in range(2))
    follower = shop.create("export", args={"rows": 1}, after=[first])
    shop.desk.cancel(shop.box, JobFilter(ids=[first, other]))
    with shop.engine.begin() as connection:
        connection.execute(text("UPDATE report_jobs SET finished_at = '2026-01-01' WHERE finished_at IS NOT NULL"))
    with shop.engine.begin() as another_worker:
        another_worker.execute(text(f"SELECT id FROM report_jobs WHERE id = {follower} FOR UPDATE"))
        assert [shop.store.delete_finished(shop.box) for _ in range(2)] == [2, 0]
    assert shop.desk.show(shop.box, first) is not None
    assert [shop.store.delete_finished(shop.box) for _ in range(2)] == [1, 0]


# ── through a pooler in transaction mode ─────────────────────────────────────────────────────────────


def test_jobs_run_behind_a_pooler_in_transaction_mode(
    tmp_path: Path, postgres_url: str, pgbouncer: Callable[..., PgBouncer]
) -> None:
    with closing(Shop(tmp_path, pgbouncer(pool_size=4).url(postgres_url))) as shop:
        jobs = [shop.create("export", args={"rows": n}, lock_key=f"k{n % 3}") for n in range(12)]
        with shop.worker(), shop.worker():
            for job in jobs:
                shop.becomes(job, JobState.SUCCEEDED)
        with shop.engine.connect() as connection:
            assert connection.scalar(text("SELECT count(*) FROM effects")) == 12
