"""Boxes of long jobs are paused and resumed, by the command line, and for every worker; doctor and status know them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import boxengine
from boxengine.adapters.sql.jobs.pauses import SqlJobPauses
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.app.boxes import load_for_worker
from tests.cli.project import Project
from tests.conformance.jobs import BOX, SqlHarness
from tests.eventually import eventually

JOBS = """
jobs: {poll_interval: 0.05, heartbeat: 0.2}
job_items:
  report_job: {tasks: {export: tests.integration.jobs.handlers.export}}
  other_job: {tasks: {export: tests.integration.jobs.handlers.export}}
"""


@pytest.fixture(params=["postgres_url", "mysql_url"])
def jobs(request: pytest.FixtureRequest) -> Iterator[SqlHarness]:
    harness = SqlHarness(request.getfixturevalue(request.param))
    yield harness
    harness.close()


def test_the_latest_decision_holds_and_retention_leaves_it(jobs: SqlHarness) -> None:
    pauses, seen = SqlJobPauses(SqlJobs(jobs.engine)), SqlJobPauses(SqlJobs(jobs.engines[1]))
    assert seen.running(BOX) is None
    pauses.set(BOX, running=False, who="Zoë")
    assert seen.running(BOX) is False
    jobs.one()
    with jobs.engine.begin() as connection:
        connection.execute(sa.text("UPDATE report_jobs SET status = 'succeeded', finished_at = '2026-01-01'"))
    assert jobs.store.delete_finished(BOX) == 1
    assert seen.running(BOX) is False
    pauses.set(BOX, running=True, who="Zoë")
    assert seen.running(BOX) is True
    pauses.forget(BOX, who="Zoë")
    assert seen.running(BOX) is None


def test_a_paused_box_begins_nothing_until_it_is_resumed(tmp_path: Path, postgres_url: str) -> None:
    # No Redis answers there: long jobs need none.
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", transports="log: {}", more=JOBS)
    boxes = load_for_worker(tmp_path / "outbox.yml")
    engine = sa.create_engine(postgres_url)
    project.call("db", "create")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE effects (body varchar(100) NOT NULL)"))
        for box in ("report_job", "other_job"):
            boxes.create_job(connection, box, task="export", args={"rows": 1})

    def status(box: str) -> str:
        with engine.connect() as connection:
            return str(connection.scalar(sa.text(f"SELECT status FROM {box}s")))

    assert project.call("pause", "report_job") == "report_job: paused\n"
    with boxengine.running(boxes, boxes=["report_job", "other_job"]):
        eventually(lambda: status("other_job") == "succeeded")
        assert status("report_job") == "queued"
        rows = json.loads(project.call("jobs", "stat", "--json"))
        assert {row["box"]: row["paused"] for row in rows} == {"report_job": True, "other_job": False}
        assert "paused" in project.call("status", "report_job")
        assert project.call("resume", "report_job") == "report_job: resumed\n"
        eventually(lambda: status("report_job") == "succeeded")
    assert project.call("pause", "report_job", "--forget").startswith("report_job: running, as polling_auto_disabled")
    engine.dispose()


def test_doctor_finds_missing_tables_and_jobs_that_nobody_looks_after(tmp_path: Path, postgres_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", transports="log: {}", more=JOBS)
    engine = sa.create_engine(postgres_url)

    def found() -> dict[str, str | None]:
        told = json.loads(project.call("doctor", "--json", expect=1))
        return {each["text"]: each["advice"] for each in told if each["area"] == "jobs"}

    assert found()["report_job: table report_jobs does not exist: db create."] == "boxengine db create makes it."
    project.call("db", "create")
    assert set(found().values()) == {None}
    with engine.begin() as connection:
        for status in ("running", "queued"):
            connection.execute(
                sa.text(
                    "INSERT INTO report_jobs (task, args, status, lease_expires_at, available_at) "
                    f"VALUES ('export', '{{}}', '{status}', now() - interval '5 min', now() - interval '5 min')"
                )
            )
        connection.execute(sa.text("DROP INDEX ix_other_jobs_ready"))
    texts = "\n".join(text for text, advice in found().items() if advice)
    assert "report_job: nobody took up 1 running job whose lease ended over a minute ago" in texts
    assert "other_job: no index ix_other_jobs_ready" in texts
    engine.dispose()
