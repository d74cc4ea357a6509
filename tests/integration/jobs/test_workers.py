"""Workers that run long jobs announce themselves in the database, so that those who look need no Redis."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import boxengine
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.jobs.pauses import SqlJobPauses
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.jobs.workers import FORGOTTEN, SqlJobWorkers
from boxengine.domain.jobs import JobBox
from tests.cli.project import Project
from tests.conformance.coordination import TTL
from tests.conformance.job_workers import BOXES, DATABASES, JobFleet
from tests.conformance.test_workers import FIRST, SECOND
from tests.eventually import eventually
from tests.integration.locking import impatient, locked

NO_REDIS = "redis://127.0.0.1:1/0"
JOBS = """
jobs: {poll_interval: 0.05, heartbeat: 0.2}
job_items:
  report_job: {concurrency: 3, tasks: {wait: tests.web.console.reports.until_canceled}}
  other_job: {concurrency: 2, tasks: {wait: tests.web.console.reports.until_canceled}}
"""


@pytest.fixture(params=DATABASES.values())
def fleet(request: pytest.FixtureRequest) -> Iterator[JobFleet]:
    found = JobFleet(request.getfixturevalue(request.param))
    yield found
    found.close()


def test_a_worker_is_seen_by_those_who_look_at_all_boxes_whichever_is_its_first(fleet: JobFleet) -> None:
    jobs = SqlJobs(fleet.engine)
    SqlJobWorkers(jobs, BOXES[1:]).announce(SECOND, ttl=TTL)
    SqlJobWorkers(jobs, BOXES).announce(FIRST, ttl=TTL)
    assert fleet.workers.living() == [FIRST, SECOND]


def test_a_box_whose_table_somebody_has_locked_hides_no_worker_of_the_others(
    fleet: JobFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.connecting.engine.ROW_LOCK_WAIT", 1)
    url = impatient(fleet.engine.url.render_as_string(hide_password=False))
    engine = connect(url, connections=2, lock_limit=timedelta(seconds=1))
    workers = SqlJobWorkers(SqlJobs(engine), BOXES)
    with locked(fleet.engine, f"{BOXES[0].table}_events"):
        workers.announce(FIRST, ttl=TTL)
        assert workers.living() == [FIRST]
    workers.announce(FIRST, ttl=TTL)
    assert SqlJobWorkers(SqlJobs(engine), BOXES[:1]).living() == [FIRST]
    engine.dispose()


def test_a_worker_is_seen_by_those_who_look_at_any_of_its_boxes(fleet: JobFleet) -> None:
    jobs = SqlJobs(fleet.engine)
    not_made = JobBox(name="new_job", table="new_jobs")
    worker = SqlJobWorkers(jobs, [not_made, *BOXES])
    for _ in range(2):
        worker.announce(FIRST, ttl=TTL)
        assert [SqlJobWorkers(jobs, [box]).living() for box in BOXES] == [[FIRST], [FIRST]]
    worker.withdraw(FIRST.id)
    assert [SqlJobWorkers(jobs, [box]).living() for box in BOXES] == [[], []]


def test_an_announcement_is_no_decision_about_a_pause(fleet: JobFleet) -> None:
    pauses = SqlJobPauses(SqlJobs(fleet.engine))
    pauses.set(BOXES[0], running=False, who="Zoë")
    fleet.workers.announce(FIRST, ttl=TTL)
    assert pauses.running(BOXES[0]) is False


def test_a_worker_that_fell_silent_long_ago_is_deleted_by_the_next_one(fleet: JobFleet) -> None:
    def entries() -> list[Any]:
        with fleet.engine.connect() as connection:
            return list(connection.execute(sa.text("SELECT id FROM fleet_jobs_events")))

    for _ in range(2):
        fleet.workers.announce(FIRST, ttl=TTL)
    assert len(entries()) == 1, "each announcement replaces the one before"
    fleet.pass_time(FORGOTTEN + timedelta(seconds=1))
    fleet.workers.announce(SECOND, ttl=TTL)
    assert len(entries()) == 1
    assert fleet.workers.living() == [SECOND]


def test_what_others_write_there_is_no_worker(fleet: JobFleet) -> None:
    fleet.workers.announce(replace(FIRST, id="c3"), ttl=TTL)
    for strange in ("[]", "7", '{"id": 1}', "null"):
        fleet.run(f"INSERT INTO fleet_jobs_events (job_id, kind, payload) VALUES (-1, 'worker', '{strange}')")
    assert [worker.id for worker in fleet.workers.living()] == ["c3"]


def test_a_worker_of_both_kinds_is_seen_without_redis_and_by_those_who_know_its_job_boxes_alone(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    project, of_worker = Project(tmp_path, database=postgres_url, redis=redis_url), tmp_path / "worker.yml"
    both = f'database: {{url: "{postgres_url}"}}\n{JOBS}\noutbox_items: {{mail_item: {{transports: {{log: {{}}}}}}}}\n'
    of_worker.write_text(f'redis: {{url: "{redis_url}"}}\n{both}')
    project.call("--config", str(of_worker), "db", "create")

    def listed(config: str) -> list[dict[str, Any]]:
        project.config.write_text(config)
        (row,) = json.loads(project.call("status", "report_job", "--json"))
        return list(row["workers"])

    with boxengine.running(of_worker):
        jobs_alone = f'database: {{url: "{postgres_url}"}}\n{JOBS}'
        eventually(lambda: len(listed(jobs_alone)) == 1)
        (worker,) = listed(f'redis: {{url: "{NO_REDIS}"}}\n{both}')
        assert worker["pid"] == os.getpid()
    assert listed(jobs_alone) == []


def test_status_lists_a_worker_of_job_boxes_alone_while_it_lives(tmp_path: Path, postgres_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis=NO_REDIS)
    project.config.write_text(f'database: {{url: "{postgres_url}"}}\nredis: {{url: "{NO_REDIS}"}}\n{JOBS}')
    project.call("db", "create")

    def listed(box: str) -> list[dict[str, Any]]:
        (row,) = json.loads(project.call("status", box, "--json"))
        return list(row["workers"])

    with boxengine.running(project.config):
        eventually(lambda: len(listed("report_job")) == 1)
        (worker,) = listed("other_job")
        assert (worker["pid"], worker["threads"]) == (os.getpid(), 5)
        assert "report_job, other_job" in project.call("status")
    assert listed("report_job") == []
