"""``boxengine db convert``, as an operator meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.cli.project import Project
from tests.eventually import eventually

BOX = "order_outbox_item"
TABLE = f"{BOX}s"
REFUSED = (
    f"box {BOX}: storage is table, but its items are in a log: set storage: log, or convert it with: "
    f"boxengine db convert {BOX} --to table"
)


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    return project


def deploy(project: Project, storage: str) -> None:
    for file in (project.config, project.folder / "writer.yml"):
        before, name, policy = file.read_text().partition(f"{BOX}:\n")
        lines = [line for line in policy.splitlines() if "storage:" not in line]
        file.write_text("\n".join([before + name + f"    storage: {storage}", *lines, ""]))


def delivered(project: Project) -> list[int]:
    return [line["id"] for line in project.deliveries()]


def pending(project: Project) -> list[int]:
    with project.engine() as engine, engine.connect() as connection:
        rows = connection.exec_driver_sql(f"SELECT id FROM {TABLE} WHERE status = 0 ORDER BY id")
        return [int(row_id) for (row_id,) in rows]


def test_there_and_back(project: Project) -> None:
    ids = project.fill(2, keys=1)["0"]
    told = project.call("db", "convert", BOX, "--to", "log")
    assert "applications and workers may now have either storage" in told
    assert f"then: boxengine db convert {BOX} --to log --finish" in told
    project.call("db", "convert", BOX, "--to", "log", "--finish", expect=2)
    assert f"box {BOX} has storage: table in the configuration: set storage: log, deploy it" in project.errors

    deploy(project, "log")
    ids += project.fill(2, keys=1)["0"]
    assert project.counts() == {0: 4}
    assert f"{BOX}: items are written to the log" in project.call("db", "convert", BOX, "--to", "log", "--finish")
    ids += project.fill(2, keys=1)["0"]
    assert project.counts() == {0: 4}
    (status,) = json.loads(project.call("status", BOX, "--json"))
    assert status["pending"] == 6

    deploy(project, "table")
    project.call("start", expect=2)
    assert f"outbox.yml: outbox_items.{BOX}.storage: {REFUSED}" in project.errors
    assert REFUSED in project.call("config", "check", "--deep", expect=1)
    assert REFUSED.removeprefix(f"box {BOX}: ") in project.call("db", "check", expect=1)
    ids += project.fill(2, keys=1)["0"]
    assert project.counts() == {0: 4}
    project.call("db", "convert", BOX, "--to", "table")
    assert "4 items copied into the table" in project.errors
    assert "there is no log" in project.call("db", "convert", BOX, "--to", "table", "--finish")
    ids += project.fill(2, keys=1)["0"]
    assert project.counts() == {0: 10}
    with project.worker() as worker:
        eventually(lambda: delivered(project) == ids, what="deliveries")
        assert worker.stop() == 0


def test_a_log_is_not_made_beside_a_table_in_use(project: Project) -> None:
    """Applications may still write to the table, and nothing would keep the order between both."""
    ids = project.fill(2, keys=1)["0"]
    deploy(project, "log")
    told = (
        f"storage is log, but its items go into table '{TABLE}', which has no log yet: set storage: table, and convert it "
        f"with: boxengine db convert {BOX} --to log"
    )
    for step in (["create"], ["upgrade"]):
        project.call("db", *step, expect=1)
        assert f"box {BOX}: {told}" in project.errors
    assert project.call("db", "check", expect=1).splitlines() == [f"error: {BOX}: {told}"]

    deploy(project, "table")
    project.call("db", "convert", BOX, "--to", "log")
    deploy(project, "log")
    assert f"{BOX}: table {TABLE} is there" in project.call("db", "create")
    project.call("db", "convert", BOX, "--to", "log", "--finish")
    ids += project.fill(1, keys=1)["0"]
    with project.worker() as worker:
        eventually(lambda: delivered(project) == ids, what="deliveries")
        assert worker.stop() == 0


def test_a_table_to_which_a_box_was_converted_gets_no_new_log_by_itself(project: Project) -> None:
    for to in ("log", "table"):
        deploy(project, to)
        project.call("db", "convert", BOX, "--to", to)
        project.call("db", "convert", BOX, "--to", to, "--finish")
    deploy(project, "log")
    told = (
        "storage is log, but its items are in a table: set storage: table, or convert it with: "
        f"boxengine db convert {BOX} --to log"
    )
    project.call("db", "create", expect=1)
    assert told in project.errors
    assert project.call("db", "check", expect=1).splitlines() == [f"error: {BOX}: {told}"]


def test_db_check_says_in_the_same_line_what_to_do(project: Project) -> None:
    """The guides promise statements from it, such as those for a column that a log lacks."""
    deploy(project, "log")
    project.call("db", "create")
    project.execute(f"CREATE PUBLICATION everything FOR TABLE {TABLE}_log")
    (line,) = project.call("db", "check").splitlines()
    assert line.startswith(f"warning: {BOX}: {TABLE}_log has no replica identity")
    statement = f"ALTER TABLE public.{TABLE}_log REPLICA IDENTITY FULL"
    assert line.endswith(f". As its owner: {statement}.")
    project.execute(statement)
    assert "all in order" in project.call("db", "check")


def test_a_table_without_items_gets_its_log_at_once(project: Project) -> None:
    deploy(project, "log")
    project.call("db", "create")
    project.call("db", "check")


def test_a_dry_run_prints_the_sql_that_makes_the_step_and_changes_nothing(project: Project) -> None:
    for to, finish in (("log", False), ("log", True), ("table", False), ("table", True)):
        deploy(project, to)
        step = ["db", "convert", BOX, "--to", to, *(["--finish"] if finish else [])]
        before = project.call(*step, "--dry-run")
        assert before == project.call(*step, "--dry-run")
        assert before.startswith("BEGIN;\n")
        assert before.endswith("COMMIT;\n")
        assert "SET LOCAL lock_timeout = '250ms';" in before
        with psycopg.connect(project.database.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(before.encode())
        assert project.call(*step, "--dry-run") == ""
    assert "there is no log" in project.call("db", "convert", BOX, "--to", "table")


def test_one_that_is_killed_within_a_step_goes_on(project: Project) -> None:
    project.call("db", "convert", BOX, "--to", "log")
    deploy(project, "log")
    project.call("db", "convert", BOX, "--to", "log", "--finish")
    ids = sorted(each for found in project.fill(50, keys=50).values() for each in found)
    writing = f"LOCK TABLE {TABLE}_log IN ROW EXCLUSIVE MODE"
    waits = (
        f"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{TABLE}_log'::regclass "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    step = ["db", "convert", BOX, "--to", "table"]
    with project.engine() as engine, engine.connect() as writer, engine.connect() as other:
        writer.exec_driver_sql(writing)
        command = subprocess.Popen(
            [sys.executable, "-m", "boxengine", *step, "--lock-timeout", "60"],
            cwd=project.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ},
        )
        try:
            eventually(lambda: other.exec_driver_sql(waits).scalar() == 1, what="the command waits for the writer")
            command.send_signal(signal.SIGKILL)
        finally:
            command.kill()
            command.wait()
        other.rollback()
        writer.commit()
    assert pending(project) == ids  # copied before the switch
    project.call(*step)
    deploy(project, "table")
    project.call(*step, "--finish")
    assert pending(project) == ids


def test_what_cannot_be_converted_is_refused_with_the_reason(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    more = """
  read_outbox_item:
    storage: log
    subscriptions: {billing: {transports: {log: {}}}}
  counted_outbox_item: {sequence: true, transports: {log: {}}}
inbox_items:
  pay_inbox_item: {transports: {log: {}}}
"""
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=more)
    project.call("db", "create")
    for box, reason in {
        "read_outbox_item": "it has subscriptions",
        "counted_outbox_item": "it has sequence",
        "pay_inbox_item": "it is an inbox",
    }.items():
        project.call("db", "convert", box, "--to", "log", expect=2)
        assert f"box {box} cannot be converted: {reason}" in project.errors


def test_another_database_is_refused(tmp_path: Path, mysql_url: str, redis_url: str) -> None:
    project = Project(tmp_path, database=mysql_url, redis=redis_url)
    project.call("db", "convert", BOX, "--to", "log", expect=2)
    assert f"box {BOX} cannot be converted: storage: log needs PostgreSQL" in project.errors
