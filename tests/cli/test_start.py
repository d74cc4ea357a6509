"""``boxengine start`` as a process: deliveries, signals, crashes and outages."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
import redis

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.engine.delivering.holds.sizing import LARGE, LARGE_UNMARKED, ROWS
from tests.cli.project import FILE, Project, Worker, first_deliveries_in_order
from tests.eventually import eventually

IN_WORK = 4 * LARGE * ROWS
"""The most items that a crash may repeat: a large batch of each of the four threads."""


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.run("db", "create")
    return project


def all_delivered(project: Project, count: int) -> None:
    eventually(lambda: project.counts().get(2) == count, what=f"{count} delivered")


def killed_in_mid_drain(project: Project, count: int) -> dict[str, list[int]]:
    """Commits items and kills a worker while it delivers them; all that was committed, by key.

    A worker may be done before a busy machine lets the test look: then with as many items again.
    """
    committed: dict[str, list[int]] = {}
    for _ in range(5):
        for key, ids in project.fill(count).items():
            committed.setdefault(key, []).extend(ids)
        before = len(project.deliveries())
        with project.worker() as worker:
            eventually(lambda before=before: len(project.deliveries()) > before + 2000)  # type: ignore[misc]
            worker.kill()
        if project.counts().get(0, 0) > 0:
            return committed
    raise AssertionError("five workers were too quick to be killed in the middle")


def outages(worker: Worker) -> int:
    return sum(1 for line in worker.lines() if line["level"].lower() in ("warning", "error"))


def test_committed_items_are_delivered_once_and_in_order_and_sigterm_ends_with_0(project: Project) -> None:
    committed = project.fill(3000)
    with project.worker() as worker:
        all_delivered(project, 3000)
        committed_later = project.fill(10)
        all_delivered(project, 3010)
        assert worker.stop() == 0
    for key, ids in committed_later.items():
        committed[key] += ids
    deliveries = project.deliveries()
    assert len(deliveries) == 3010
    assert first_deliveries_in_order(deliveries, committed)


def test_kill_9_in_mid_drain_loses_nothing_and_reorders_nothing(project: Project) -> None:
    committed = killed_in_mid_drain(project, 20_000)
    count = sum(map(len, committed.values()))
    with project.worker() as worker:
        all_delivered(project, count)
        assert worker.stop() == 0
    deliveries = project.deliveries()
    assert first_deliveries_in_order(deliveries, committed)
    assert len(deliveries) - count <= IN_WORK


def test_kill_9_loses_nothing_and_reorders_nothing_where_rows_are_deleted_as_they_are_claimed(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    keeping_nothing = "    retention_delivered_items: PT0S\n    delivered_min_retention_period: PT0S"
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=keeping_nothing)
    project.run("db", "create")
    committed = killed_in_mid_drain(project, 40_000)
    with project.worker() as worker:
        eventually(lambda: project.counts() == {}, what="nothing is left")
        assert worker.stop() == 0
    deliveries = project.deliveries()
    assert first_deliveries_in_order(deliveries, committed)
    assert len(deliveries) - sum(map(len, committed.values())) <= 4 * LARGE_UNMARKED * ROWS


def test_two_workers_share_the_work_and_deliver_nothing_twice(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    # Each worker has a gate and a file of its own, in its folder. A quick worker would otherwise be done before the other begins.
    project = Project(
        tmp_path,
        database=postgres_url,
        redis=redis_url,
        transports="transports.Gate: {folder: .}, file: {path: a.jsonl, fsync: false}",
    )
    project.run("db", "create")
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        (folder / "outbox.yml").write_text(project.config.read_text())
        (folder / "transports.py").write_text((tmp_path / "transports.py").read_text())
    project.fill(2000)
    workers = [Worker(folder, ()) for folder in folders]
    try:
        for folder in folders:
            eventually((folder / "reached").exists)
        for folder in folders:
            (folder / "open").touch()
        all_delivered(project, 2000)
        assert [worker.stop() for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
    shares = [len((folder / "a.jsonl").read_bytes().splitlines()) for folder in folders]
    assert sum(shares) == 2000
    assert min(shares) > 0


def test_several_processes_under_one_parent_survive_the_death_of_one(project: Project) -> None:
    committed = project.fill(5000)
    with project.worker("--processes", "2") as worker:
        started = eventually(lambda: [line["pid"] for line in worker.lines() if "started: " in line["message"]][:2])
        eventually(lambda: len([line for line in worker.lines() if "started: " in line["message"]]) >= 2)
        os.kill(started[0], signal.SIGKILL)
        eventually(lambda: any("another is started" in line["message"] for line in worker.lines()))
        all_delivered(project, 5000)
        assert worker.stop() == 0
    assert first_deliveries_in_order(project.deliveries(), committed)


def test_a_transport_that_raises_fails_its_items_with_the_reason_and_the_worker_goes_on(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    other = f"  payment_outbox_item:\n    transports: {{{FILE}}}\n"
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="transports.Broken: {}", more=other)
    project.run("db", "create")
    project.fill(50)
    project.fill(50, box="payment_outbox_item")
    with project.worker() as worker:
        eventually(lambda: project.counts() == {1: 50})
        eventually(lambda: project.counts("payment_outbox_items") == {2: 50})
        assert worker.stop() == 0
    with project.engine() as engine, engine.connect() as connection:
        log = connection.exec_driver_sql("SELECT error_log FROM order_outbox_items LIMIT 1").scalar_one()
    assert "RuntimeError: the receiver is on fire" in log
    assert "transports.Broken" in log


@pytest.mark.parametrize(
    ("how", "code", "told"), [("raise", 0, "KeyboardInterrupt: no"), ("hang", 1, "did not stop in time")]
)
def test_a_transport_that_cannot_be_closed_is_told_and_holds_up_neither_the_stop_nor_the_other_transports(
    tmp_path: Path, postgres_url: str, redis_url: str, how: str, code: int, told: str
) -> None:
    project = Project(
        tmp_path, database=postgres_url, redis=redis_url, transports=f"transports.Unclosable: {{how: {how}}}, {FILE}"
    )
    project.run("db", "create")
    project.fill(1)
    with project.worker() as worker:
        all_delivered(project, 1)
        assert worker.stop() == code
        (line,) = worker.logged(told)
        assert "transport transports.Unclosable of box order_outbox_item" in f"{line}"
        assert worker.logged("stopped")


def test_a_library_that_hangs_when_python_ends_holds_the_process_up_for_seconds_only(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="transports.Undying: {}")
    project.run("db", "create")
    project.fill(1)
    with project.worker() as worker:
        all_delivered(project, 1)
        assert worker.stop() == 1
        assert worker.logged("stopped")
        assert "in __del__" in worker.log.read_text()


# ── outages ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_box_without_a_table_hides_nothing_of_what_others_lack(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    """A new subscription has none between its deployment and `db create`."""
    more = "".join(f"  {name}_outbox_item: {{transports: {{log: {{}}}}}}\n" for name in ("missing", "whole"))
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=more)
    project.call("db", "create", "whole_outbox_item")
    project.execute("ALTER TABLE whole_outbox_items DROP COLUMN error_log")
    with project.worker() as worker:
        eventually(lambda: worker.logged("table whole_outbox_items has no column error_log"))


def test_postgresql_down_at_start_is_waited_for_calmly(
    tmp_path: Path, own_postgres: EmbeddedPostgres, redis_url: str
) -> None:
    project = Project(tmp_path, database=own_postgres.url(), redis=redis_url)
    project.run("db", "create")
    committed = project.fill(100)
    own_postgres.stop()
    with project.worker() as worker:
        eventually(lambda: outages(worker) > 0)
        assert worker.process.poll() is None
        own_postgres.start()
        all_delivered(project, 100)
        assert "Traceback" not in worker.log.read_text()
        assert outages(worker) <= 20
        assert worker.stop() == 0
    assert first_deliveries_in_order(project.deliveries(), committed)


def test_postgresql_killed_in_mid_run_loses_nothing(
    tmp_path: Path, own_postgres: EmbeddedPostgres, redis_url: str
) -> None:
    project = Project(tmp_path, database=own_postgres.url(), redis=redis_url)
    project.run("db", "create")
    committed = project.fill(20_000)
    with project.worker() as worker:
        eventually(lambda: len(project.deliveries()) > 1000)
        own_postgres.crash()
        own_postgres.start()
        all_delivered(project, 20_000)
        assert "Traceback" not in worker.log.read_text()
        assert outages(worker) <= 20
        assert worker.stop() == 0
    deliveries = project.deliveries()
    assert first_deliveries_in_order(deliveries, committed)
    assert len(deliveries) - 20_000 <= IN_WORK


def test_redis_down_at_start_is_waited_for_calmly(tmp_path: Path, postgres_url: str, own_redis: EmbeddedValkey) -> None:
    project = Project(tmp_path, database=postgres_url, redis=own_redis.url())
    project.run("db", "create")
    committed = project.fill(100)
    own_redis.stop()
    with project.worker() as worker:
        eventually(lambda: outages(worker) > 0)
        assert worker.process.poll() is None
        own_redis.start()
        all_delivered(project, 100)
        assert "Traceback" not in worker.log.read_text()
        assert outages(worker) <= 20
        assert worker.stop() == 0
    assert first_deliveries_in_order(project.deliveries(), committed)


@pytest.mark.parametrize("loss", ["kill", "flush"])
def test_redis_lost_in_mid_run_costs_neither_an_item_nor_the_order(
    tmp_path: Path, postgres_url: str, own_redis: EmbeddedValkey, loss: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=own_redis.url())
    project.run("db", "create")
    committed = project.fill(20_000)
    with project.worker() as worker:
        eventually(lambda: len(project.deliveries()) > 1000)
        if loss == "kill":
            own_redis.kill()
            own_redis.start()
        else:
            with redis.Redis.from_url(own_redis.url()) as client:
                client.flushall()
        all_delivered(project, 20_000)
        assert "Traceback" not in worker.log.read_text()
        assert outages(worker) <= 20
        assert worker.stop() == 0
    deliveries = project.deliveries()
    assert first_deliveries_in_order(deliveries, committed)
    assert Counter(line["id"] for line in deliveries).most_common(1)[0][1] == 1


def test_a_program_that_a_transport_starts_reads_an_empty_input(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    program = "subprocess.run(['cat'], stdout=subprocess.DEVNULL, check=True)"
    (tmp_path / "reading.py").write_text(f"import subprocess\n\n\ndef read(item, payload):\n    {program}\n")
    project = Project(tmp_path, database=postgres_url, redis=redis_url, transports="reading.read: {}")
    project.run("db", "create")
    project.fill(3)
    with project.worker("--processes", "2") as worker:
        all_delivered(project, 3)
        assert worker.stop() == 0
