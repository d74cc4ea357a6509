"""``boxengine cleanup``: what it deletes, and what it says while it does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from boxengine.cli import cleanup
from boxengine.ports import events
from tests.cli.project import Project

OLD = "UPDATE order_outbox_items SET status = 2, created_at = now() - interval '8 days'"
LEASE = "sbmt:outbox:retention:order_outbox_item:lock"


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    return project


def policy(project: Project, lines: str) -> None:
    project.config.write_text(project.config.read_text() + lines)


def test_a_retention_under_its_minimum_is_refused_and_nothing_deleted(project: Project) -> None:
    project.fill(3)
    project.execute(OLD)
    policy(project, "    retention: PT1H\n")
    project.run("cleanup", expect=2)
    assert "retention" in project.errors
    assert "min_retention_period" in project.errors
    assert project.counts() == {2: 3}


def test_a_box_without_its_table_leaves_no_other_uncleaned(project: Project) -> None:
    policy(project, "  payment_outbox_item:\n    transports: {log: {}}\n")
    project.call("db", "create")
    project.call("create", "payment_outbox_item", "--event-key", "1", "--payload", "x")
    project.execute(OLD.replace("order_", "payment_"), "DROP TABLE order_outbox_items")
    assert project.call("cleanup", expect=1) == "payment_outbox_item: 1 item deleted\n"
    assert "box order_outbox_item: there is no table 'order_outbox_items'" in project.errors


def test_a_box_with_a_row_that_another_table_refers_to_leaves_no_other_uncleaned(project: Project) -> None:
    policy(project, "  payment_outbox_item:\n    transports: {log: {}}\n")
    project.call("db", "create")
    project.fill(1)
    project.call("create", "payment_outbox_item", "--event-key", "1", "--payload", "x")
    project.execute(OLD, OLD.replace("order_", "payment_"))
    project.execute("CREATE TABLE bills (item bigint REFERENCES order_outbox_items)", "INSERT INTO bills VALUES (1)")
    assert project.call("cleanup", expect=1) == "payment_outbox_item: 1 item deleted\n"
    assert "order_outbox_item: the database: " in project.errors
    assert "bills" in project.errors


def test_a_database_that_is_away_is_told_once(project: Project) -> None:
    policy(project, "  payment_outbox_item:\n    transports: {log: {}}\n")
    project.config.write_text(
        project.config.read_text().replace(project.database, "postgresql+psycopg://x@127.0.0.1:1/x")
    )
    project.call("cleanup", expect=1)
    assert len(project.errors.splitlines()) == 1
    assert "outbox_item" not in project.errors


def test_a_box_that_a_worker_is_cleaning_up_is_left_to_it_and_exits_with_1(project: Project, redis_url: str) -> None:
    project.fill(3)
    project.execute(OLD)
    with redis.Redis.from_url(redis_url) as client:
        client.set(LEASE, "another", px=60_000)
        project.run("cleanup", expect=1)
        assert "a worker is cleaning up order_outbox_item right now" in project.errors
        assert project.counts() == {2: 3}
        client.delete(LEASE)
    assert "3 items deleted" in project.run("cleanup")


def test_long_work_shows_how_far_it_is_where_there_is_no_terminal(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "LINE_EVERY", 0.0)
    box = project.boxes().box("order_outbox_item")
    with cleanup._Telling() as telling:
        telling.begin(box)
        telling.see(events.Deleted(box, rows=1000, seconds=0.1))
        telling.see(events.Deleted(box, rows=500, seconds=0.1))
    assert capsys.readouterr().err.splitlines()[-1] == "order_outbox_item: 1,500 items deleted so far"


def test_a_log_without_a_partition_for_what_is_written_now_is_told(project: Project) -> None:
    policy(project, "    storage: log\n    log_partitions: P1D\n")
    project.call("db", "create")
    assert project.run("cleanup") == "order_outbox_item: 0 items deleted\n"
    assert project.errors == ""
    project.execute("DROP TABLE order_outbox_items_log_p0")
    project.run("cleanup")
    assert "partitions of order_outbox_item: order_outbox_items_log has no partition" in " ".join(
        project.errors.split()
    )


def test_a_signal_ends_it_after_the_statement_under_way(project: Project) -> None:
    project.fill(50)
    project.execute(OLD)
    policy(project, "    deletion_batch_size: 1\n    deletion_sleep_time: 600\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "boxengine", "cleanup"], cwd=project.folder, stderr=subprocess.PIPE, text=True
    )
    try:
        while project.counts() == {2: 50}:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "run the same command again to finish" in errors
    assert project.counts() == {2: 49}
