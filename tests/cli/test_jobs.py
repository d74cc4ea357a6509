"""``boxengine jobs``, and what other commands do with boxes of long jobs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from tests.cli.project import Project
from tests.eventually import eventually

JOBS = """
jobs: {poll_interval: 0.05, heartbeat: 0.2}
job_items:
  report_job:
    tasks: {export: reports.export}
"""
REPORTS = """
def export(job):
    job.progress(seen=job.args["n"])
    return job.args["n"] + 1
"""


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of the task in the project's folder, where commands that run in this process find it, too."""
    (tmp_path / "reports.py").write_text(REPORTS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reports", raising=False)


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, reports: None) -> Project:
    # No Redis answers there: long jobs need none.
    return Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", more=JOBS)


def test_a_job_from_its_creation_to_its_end(project: Project) -> None:
    assert "report_job: table report_jobs made" in project.run("db", "create", "report_job")
    assert "all in order" in project.call("db", "check", "report_job")
    assert "CREATE TABLE report_jobs_events" in project.call("db", "ddl", "report_job")
    created = project.run("create", "report_job", "--task", "export", "--args", '{"n": 1}', "--lock-key", "k")
    assert created == "job 1 written to report_job\n"
    project.call("create", "report_job", "--task", "export", "--args", '{"n": 1}', "--delay", "3600")
    with project.worker("-b", "report_job"):
        eventually(
            lambda: json.loads(project.call("jobs", "show", "report_job", "1", "--json"))["status"] == "succeeded"
        )
    shown = project.run("jobs", "show", "report_job", "1")
    assert not {"waits", "partition_key"} & {line.split(" ")[0] for line in shown.splitlines()}  # they say nothing
    assert "result            2" in shown
    assert [line.split()[1] for line in shown.splitlines()[-3:]] == ["queued", "picked", "done"]
    listed = json.loads(project.call("jobs", "list", "report_job", "--status", "queued", "--json"))
    assert [row["id"] for row in listed] == [2]
    assert project.call("jobs", "cancel", "report_job", "--ids", "2") == "1 job canceled or asked to stop\n"
    assert project.call("jobs", "retry", "report_job", "--ids", "2") == "1 job queued again\n"
    (row,) = json.loads(project.call("jobs", "stat", "--json", "--exact"))
    assert row["precision"]["succeeded"] == "exact"
    assert {name: row[name] for name in ("ready", "taken", "delayed", "succeeded", "canceled")} == {
        "ready": 1,
        "taken": 0,
        "delayed": 0,
        "succeeded": 1,
        "canceled": 0,
    }
    (row,) = json.loads(project.call("status", "report_job", "--json"))
    assert (row["box"], row["type"], row["ready"]) == ("report_job", "job", 1)
    head, line, *_ = project.call("status", "report_job").splitlines()  # below: the worker that has just ended
    assert head.split()[1:] == [
        "ready",
        "taken",
        "delayed",
        "blocked",
        "succeeded",
        "failed",
        "canceled",
        "lost",
        "lag",
        "state",
    ]
    assert line.split()[:-3] == ["report_job", "1", "0", "0", "0", "1", "0", "0", "0"]
    assert line.endswith(" s  on"), "the lag of the one that is ready"


def test_ids_go_behind_the_box_or_into_the_option(project: Project) -> None:
    project.call("db", "create", "report_job")
    for number in range(6):
        project.call("create", "report_job", "--task", "export", "--args", json.dumps({"n": number}))
    assert project.call("jobs", "cancel", "report_job", "1", "2") == "2 jobs canceled or asked to stop\n"
    assert project.call("jobs", "cancel", "report_job", "3", "--ids", "4", "--ids", "5") == (
        "3 jobs canceled or asked to stop\n"
    )
    assert project.call("jobs", "retry", "report_job", "1", "4,5") == "3 jobs queued again\n"
    queued = json.loads(project.call("jobs", "list", "report_job", "-s", "queued", "--json"))
    assert [row["id"] for row in queued] == [6, 5, 4, 1]


def test_ids_that_are_left_alone_are_named_with_the_reason(project: Project) -> None:
    project.call("db", "create", "report_job")
    for number in range(3):
        project.call("create", "report_job", "--task", "export", "--args", json.dumps({"n": number}))
    assert project.call("jobs", "retry", "report_job", "2", "99") == "0 jobs queued again\n"
    assert project.errors == "left alone: 2 (queued), 99 (no such job)\n"
    assert project.call("jobs", "cancel", "report_job", "3") == "1 job canceled or asked to stop\n"
    assert project.errors == ""
    assert project.call("jobs", "cancel", "report_job", "2,3") == "1 job canceled or asked to stop\n"
    assert project.errors == "left alone: 3 (canceled)\n"


def test_db_upgrade_makes_and_completes_the_tables_of_jobs_and_then_has_nothing_to_do(
    tmp_path: Path, postgres_url: str
) -> None:
    project = Project(
        tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", more="job_items: {report_job: {}}"
    )
    printed = project.call("db", "upgrade", "report_job", "--sql")
    assert "CREATE TABLE report_jobs_schedules" in printed
    assert "report_job: table report_jobs does not exist" in project.call("db", "check", "report_job", expect=1)
    project.call("db", "upgrade", "report_job")
    project.execute("ALTER TABLE report_jobs DROP COLUMN producer", "DROP TABLE report_jobs_after")
    done = project.call("db", "upgrade", "report_job")
    assert "1/5 report_jobs: add the column producer" in done
    assert "1 box, nothing to do" in project.call("db", "upgrade", "report_job")
    assert "all in order" in project.call("db", "check", "report_job")


def test_a_job_waits_for_another_one_and_says_so(project: Project) -> None:
    project.call("db", "create", "report_job")
    project.call("create", "report_job", "--task", "export", "--args", '{"n": 1}')
    project.call("create", "report_job", "--task", "export", "--args", '{"n": 2}', "--after", "1")
    project.call("create", "report_job", "--task", "export", "--after", "1,2", "--after-failure", "run")
    assert "waits for         job 1 (queued)" in project.call("jobs", "show", "report_job", "2")
    assert json.loads(project.call("jobs", "show", "report_job", "3", "--json"))["after"] == [
        {"id": 1, "status": "queued", "waits": True},
        {"id": 2, "status": "queued", "waits": True},
    ]
    project.call("create", "report_job", "--task", "export", "--after", "7", expect=1)
    assert "box report_job: after: there is no job 7" in project.errors
    project.call("jobs", "cancel", "report_job", "--ids", "1")
    with project.worker("-b", "report_job"):
        eventually(lambda: json.loads(project.call("jobs", "show", "report_job", "3", "--json"))["attempt"] == 1)
    shown = project.call("jobs", "show", "report_job", "2")
    assert "job 1, for which it waited, was canceled" in shown
    assert "waited for        job 1 (canceled)" in shown


def test_a_schedule_is_listed_with_its_next_run_and_a_worker_makes_up_for_a_missed_one(
    tmp_path: Path, postgres_url: str, reports: None
) -> None:
    cron = "    cron: {nightly: {schedule: 30 2 * * *, timezone: Europe/Berlin, task: export, args: {n: 1}}}\n"
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", more=JOBS + cron)
    project.call("db", "create")
    (row,) = json.loads(project.call("jobs", "schedules", "report_job", "--json"))
    assert (row["schedule"], row["cron"], row["timezone"], row["handled_until"]) == (
        "nightly",
        "30 2 * * *",
        "Europe/Berlin",
        None,
    )
    assert "T02:30:00+0" in row["next_run"]
    assert row["next_run"] in project.call("jobs", "schedules")
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO report_jobs_schedules VALUES ('nightly', '30 2 * * * Europe/Berlin', now() - interval '3 days')"
        )
    engine.dispose()
    with project.worker("-b", "report_job"):
        eventually(lambda: json.loads(project.call("jobs", "list", "report_job", "-s", "succeeded", "--json")))
    (job,) = json.loads(project.call("jobs", "list", "report_job", "--json"))
    assert (job["producer"], job["result"]) == ("cron nightly", 2)


CONTRACTS = "contracts: [{id: 7, name: Export, fields: {n: int64, day: {type: string, default: today}}}]"


def test_a_task_with_a_contract_takes_what_the_contract_says(tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "reports.py").write_text("def export(job):\n    return [job.args.n, job.args.day]")
    (tmp_path / "contracts.yml").write_text(CONTRACTS)
    more = JOBS + "    contracts: {export: contracts.Export}\n"
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", more=more)
    made = tmp_path / "contracts.py"
    for _ in range(2):
        project.run("new", "contract", str(tmp_path / "contracts.yml"))
    assert "class Export(Contract):" in made.read_text()
    project.run("db", "create")
    project.run("create", "report_job", "--task", "export", "--args", '{"n": "1"}', expect=1)
    assert "Export.n: expected int64, got '1'" in " ".join(project.errors.split())
    project.run("create", "report_job", "--task", "export", "--args", '{"n": 1}')
    with project.worker("-b", "report_job"):
        eventually(lambda: json.loads(project.run("jobs", "list", "report_job", "-s", "succeeded", "--json")))
    assert json.loads(project.run("jobs", "show", "report_job", "1", "--json"))["result"] == [1, "today"]
    made.write_text("# my own\n")
    project.run("new", "contract", str(tmp_path / "contracts.yml"), expect=1)
    assert made.read_text() == "# my own\n"


@pytest.mark.parametrize(
    ("command", "message", "code"),
    [
        (
            ["jobs", "list", "order_outbox_item"],
            "box 'order_outbox_item' holds items, not long jobs: use boxengine items",
            2,
        ),
        (["items", "list", "report_job"], "box 'report_job' holds long jobs, not items: use boxengine jobs", 2),
        (["jobs", "cancel", "report_job"], "boxengine: --yes is needed to cancel jobs that are not named by id", 2),
        (["jobs", "cancel", "report_job", "x"], "Invalid value for ID: expected ids such as 1,2,3", 2),
        (
            ["jobs", "retry", "report_job", "1,9223372036854775808"],
            "Invalid value for ID: expected ids such as 1,2,3",
            2,
        ),
        (["jobs", "show", "report_job", "9223372036854775808"], "9223372036854775807", 2),
        (
            ["jobs", "retry", "report_job", "--status", "queued", "--status", "failed", "--yes"],
            "retry takes canceled, failed, lost, succeeded jobs",
            2,
        ),
        (["jobs", "cancel", "report_job", "1", "--status", "failed"], "cancel takes queued, running jobs", 2),
        (["create", "report_job"], "boxengine: --task is needed for a job", 2),
        (["create", "report_job", "--task", "nope"], "no task 'nope'; known: export", 1),
        (["create", "report_job", "--task", "export", "--args", "{"], "boxengine: --args: expected JSON", 2),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(project: Project, command: list[str], message: str, code: int) -> None:
    project.call(*command, expect=code)
    assert message in " ".join(project.errors.replace("│", " ").split())


def test_jobs_go_in_from_json_lines_and_come_out_as_such(tmp_path: Path, postgres_url: str) -> None:
    more = JOBS.replace("reports.export", "tests.integration.jobs.handlers.export")
    project = Project(tmp_path, database=postgres_url, redis="redis://127.0.0.1:1/0", transports="log: {}", more=more)
    project.call("db", "create", "report_job")
    lines = project.folder / "jobs.jsonl"
    lines.write_text(
        '{"task": "export", "args": {"n": 1}, "lock_key": "k", "priority": 5}\n'
        '{"args": {"n": 2}, "idempotency_key": "once"}\n'
        '{"task": "nope"}\n'
        '{"args": {"n": 3}, "delay": 1e999}\n'
        '{"args": {"n": 2}, "idempotency_key": "once"}\n'
    )
    project.call("create", "report_job", "--jsonl", str(lines), expect=1)
    assert "line 2: task is missing; 0 jobs written, go on from line 1" in project.errors
    told = project.call("create", "report_job", "--jsonl", str(lines), "--task", "export", "--skip-bad")
    assert told == "3 jobs written to report_job, 2 bad lines left out\n"
    assert "line 3: box report_job: no task 'nope'" in project.errors
    assert "line 4: delay: expected seconds" in project.errors
    rows = [json.loads(line) for line in project.call("jobs", "list", "report_job", "--jsonl").splitlines()]
    assert [(row["args"], row["lock_key"], row["priority"]) for row in rows] == [
        ({"n": 2}, None, 100),
        ({"n": 1}, "k", 5),
    ]
