"""``boxengine status``: what it shows, and what it shows when a server is out."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from redis import Redis
from rich.console import Console

from boxengine.adapters.redis.workers import RedisWorkers
from boxengine.cli import main, status
from boxengine.cli.status_view import view
from boxengine.embedded import EmbeddedValkey
from boxengine.errors import BoxError
from boxengine.ports import OpenCircuit, WorkerInfo
from tests.cli.project import FILE, Project
from tests.eventually import eventually

JOBS = "job_items:\n  mail_job: {tasks: {send: json.dumps}}\n  report_job: {tasks: {export: json.dumps}}\n"
OTHER = f"  payment_outbox_item:\n    transports: {{{FILE}}}\n"


@pytest.fixture
def project(tmp_path: Path, postgres_url: str, redis_url: str) -> Project:
    project = Project(tmp_path, database=postgres_url, redis=redis_url, more=OTHER)
    project.call("db", "create")
    return project


def rows(project: Project, *arguments: str, expect: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(project.call("status", *arguments, "--json", expect=expect))
    return found


def test_it_counts_by_status_and_tells_how_old_the_oldest_pending_item_is(project: Project) -> None:
    project.fill(10)
    project.execute(
        "UPDATE order_outbox_items SET created_at = now() - interval '2 hours' WHERE id = 1",
        "UPDATE order_outbox_items SET errors_count = 1, processed_at = now() WHERE id = 2",
        "UPDATE order_outbox_items SET status = 1 WHERE id IN (3, 4, 5)",
        "UPDATE order_outbox_items SET status = 2 WHERE id IN (6, 7)",
        "UPDATE order_outbox_items SET status = 3 WHERE id = 8",
    )
    row, other = rows(project)
    counts = {name: row[name] for name in ("pending", "retrying", "failed", "delivered", "discarded")}
    assert counts == {"pending": 4, "retrying": 1, "failed": 3, "delivered": 2, "discarded": 1}
    assert set(row["precision"].values()) == {"exact"}
    assert 7200 <= row["oldest_pending_seconds"] < 7300
    assert (row["queue"], row["queue_lag_seconds"], row["paused"], row["workers"]) == (0, None, False, [])
    assert (other["box"], other["pending"], other["oldest_pending_seconds"]) == ("payment_outbox_item", 0, None)
    assert rows(project, "payment_outbox_item")[0] == other


def test_it_prints_a_table_for_people(project: Project) -> None:
    project.fill(3)
    project.call("pause", "payment_outbox_item")
    shown = project.call("status")
    lines = {line.split()[0]: line.split() for line in shown.splitlines() if "_item" in line}
    cells = lines["order_outbox_item"]
    assert (cells[1:7], cells[-5:]) == (["outbox", "3", "0", "0", "0", "0"], ["s", "0", "-", "on", "0"])
    assert "paused" in lines["payment_outbox_item"]


LONG = "international_shipments/customs_declaration_inbox_item"


def row_of(box: str, **values: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("pending", "retrying", "failed", "delivered", "discarded"), 1_234_567)
    workers = [
        {
            "id": "4f1c9a02b7",
            "host": "worker-7d9f.prod.example",
            "pid": 17,
            "threads": 4,
            "started_at": "2026-01-31T12:00:00Z",
        }
    ]
    return {
        "box": box,
        "type": "inbox" if "inbox" in box else "outbox",
        **counts,
        "precision": dict.fromkeys(counts, "about"),
        "oldest_pending_seconds": 1_000_000.0,
        "queue": 120,
        "queue_lag_seconds": 90.0,
        "paused": False,
        "workers": workers,
        "circuits": [],
        **values,
    }


@pytest.mark.parametrize("width", [80, 120, 300])
def test_a_narrow_terminal_shows_all_that_a_wide_one_shows(width: int) -> None:
    shown = view([row_of("order_outbox_item"), row_of(LONG)], width=width)
    assert max(map(len, shown.splitlines())) <= width
    words = shown.split()
    assert {"order_outbox_item", "outbox", LONG, "inbox", "1,234,567", "11", "days,", "120", "4f1c9a02b7"} <= {
        *words,
        *(word.strip("(),:") for word in words),
    }
    assert "…" not in shown


def test_what_strangers_put_into_redis_does_not_steer_the_terminal() -> None:
    odd = {"id": "a\x1b[2J", "host": "h\nx", "pid": 1, "threads": 1, "started_at": "2026"}
    circuit = {"transport": "k", "since": "2026", "next_try": None, "worker": "w", "reason": "\x1b]0;owned\x07"}
    shown = view([row_of(LONG, workers=[odd], circuits=[circuit])], width=80)
    assert all(character.isprintable() or character == "\n" for character in shown)
    assert "h\\nx" in shown


def test_what_a_stranger_says_of_himself_in_redis_does_not_steer_the_terminal_through_the_doctor(
    project: Project, redis_url: str
) -> None:
    now, boxes = datetime.now(UTC), ("order_outbox_item",)
    stranger = WorkerInfo(
        id="w", host="h\x1b]0;owned\x07", pid=1, boxes=boxes, threads=1, started_at=now, database="another"
    )
    with Redis.from_url(redis_url) as client:
        RedisWorkers(client).announce(stranger, ttl=timedelta(minutes=1))
    told = project.call("doctor", expect=1)
    assert "A worker on host h\\x1b]0;owned\\x07 uses this Redis" in told
    assert "\x1b" not in told


def test_what_an_error_quotes_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main._complain(BoxError("the database: Key (event_key)=(\x1b[2J) is there"), 1)
    assert capsys.readouterr().err == "boxengine: the database: Key (event_key)=(\\x1b[2J) is there\n"


def test_it_names_the_workers_of_each_box_until_they_stop(project: Project) -> None:
    with project.worker("-b", "order_outbox_item", "-c", "3") as worker:
        (known,) = eventually(lambda: rows(project)[0]["workers"])
        assert (known["pid"], known["threads"]) == (worker.process.pid, 3)
        assert rows(project)[1]["workers"] == []
        assert str(worker.process.pid) in project.call("status")
        assert worker.stop() == 0
    assert rows(project)[0]["workers"] == []


def test_it_shows_which_circuits_are_open_since_when_and_why(project: Project, redis_url: str) -> None:
    since = datetime(2026, 1, 31, 12, tzinfo=UTC)
    waiting = OpenCircuit(
        box="order_outbox_item", transport="kafka", since=since, next_try=since, reason="no broker answers"
    )
    hanging = replace(waiting, transport="slow", next_try=None, reason="no answer within 5 s")
    boxes = ("order_outbox_item", "payment_outbox_item")
    worker = WorkerInfo(id="a1", host="h", pid=1, boxes=boxes, threads=1, started_at=since, circuits=(waiting, hanging))
    with Redis.from_url(redis_url) as client:
        RedisWorkers(client).announce(worker, ttl=timedelta(minutes=1))
    row, other = rows(project)
    moment = "2026-01-31T12:00:00.000000Z"
    assert row["circuits"] == [
        {"transport": "kafka", "worker": "a1", "since": moment, "next_try": moment, "reason": "no broker answers"},
        {"transport": "slow", "worker": "a1", "since": moment, "next_try": None, "reason": "no answer within 5 s"},
    ]
    assert other["circuits"] == []
    shown = " ".join(project.call("status").split())
    assert "circuit: kafka of order_outbox_item open since 2026-01-31T12:00:00Z, next try 2026-01-31T12:00:00Z" in shown
    assert "next try when the call that hangs comes back (worker a1): no answer within 5 s" in shown


def test_with_redis_out_it_shows_what_the_database_knows_and_exits_with_1(
    tmp_path: Path, postgres_url: str, own_redis: EmbeddedValkey
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=own_redis.url())
    project.call("db", "create")
    project.fill(2)
    own_redis.stop()
    (row,) = rows(project, expect=1)
    assert (row["pending"], row["queue"], row["paused"], row["workers"]) == (2, None, None, None)
    assert "Traceback" not in project.errors
    assert len(project.errors.splitlines()) >= 1


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("CONFIG SET maxmemory 1", "used memory > 'maxmemory'"),
        ("REPLICAOF 127.0.0.1 1", "the server is a replica"),
    ],
    ids=["full", "replica"],
)
def test_with_a_redis_that_takes_no_writes_it_says_so_and_exits_with_1(
    tmp_path: Path, postgres_url: str, own_redis: EmbeddedValkey, command: str, told: str
) -> None:
    project = Project(tmp_path, database=postgres_url, redis=own_redis.url())
    project.call("db", "create")
    with Redis.from_url(own_redis.url()) as client:
        client.execute_command(*command.split())
    (row,) = rows(project, expect=1)
    assert (row["pending"], row["queue"], row["workers"]) == (0, 0, [])
    (line,) = project.errors.splitlines()
    assert told in line
    assert "nothing is delivered" in line


def test_with_the_database_out_it_shows_what_redis_knows_and_exits_with_1(project: Project) -> None:
    project.call("pause", "order_outbox_item")
    project.config.write_text(
        project.config.read_text().replace(project.database, "postgresql+psycopg://x@127.0.0.1:1/x")
    )
    row, _other = rows(project, expect=1)
    assert (row["pending"], row["queue"], row["paused"]) == (None, 0, True)
    assert len(project.errors.splitlines()) == 1


def test_a_box_without_its_table_hides_no_other(project: Project) -> None:
    project.fill(2)
    project.execute("DROP TABLE payment_outbox_items")
    row, broken = rows(project, expect=1)
    told = "box payment_outbox_item: there is no table 'payment_outbox_items'; make it with: boxengine db create"
    assert (row["pending"], row["error"]) == (2, None)
    assert (broken["pending"], broken["precision"], broken["queue"], broken["error"]) == (None, {}, 0, told)
    lines = {line.split()[0]: line.split() for line in project.call("status", expect=1).splitlines() if "_item" in line}
    assert lines["order_outbox_item"][1:3] == ["outbox", "2"]
    assert lines["payment_outbox_item"][1:8] == ["outbox", "-", "-", "-", "-", "-", "-"]
    assert project.errors == f"boxengine: {told}\n"


def test_a_box_of_long_jobs_without_its_table_hides_no_other(project: Project) -> None:
    project.config.write_text(project.config.read_text() + JOBS)
    project.call("db", "create")
    project.execute("DROP TABLE report_jobs, report_jobs_events CASCADE")
    shown = {row["box"]: row for row in rows(project, expect=1)}
    assert shown["order_outbox_item"]["pending"] == 0
    assert (shown["mail_job"]["ready"], shown["mail_job"]["error"]) == (0, None)
    assert (shown["report_job"]["ready"], shown["report_job"]["workers"]) == (None, None)
    assert "report_jobs" in shown["report_job"]["error"]
    assert "boxengine: report_job: " in project.errors
    counted = {row["box"]: row["ready"] for row in json.loads(project.call("jobs", "stat", "--json", expect=1))}
    assert counted == {"mail_job": 0, "report_job": None}
    assert "boxengine: report_job: " in project.errors
    assert "mail_job" in project.call("jobs", "stat", expect=1)


def test_a_large_table_without_an_index_to_count_by_is_not_read_whole_but_a_hint_given(project: Project) -> None:
    project.fill(2)
    project.execute(
        "UPDATE order_outbox_items SET id = 1000000 WHERE id = 2", "DROP INDEX ix_order_outbox_items_failed"
    )
    row = rows(project, "order_outbox_item")[0]
    assert (row["pending"], row["failed"], row["discarded"], row["delivered"]) == (2, None, None, None)
    assert "order_outbox_item: no index to count by; boxengine db create makes it" in project.errors
    assert rows(project, "order_outbox_item", "--exact")[0]["failed"] == 0
    project.call("db", "create")
    assert rows(project, "order_outbox_item")[0]["failed"] == 0


@contextmanager
def watching(project: Project, *options: str) -> Iterator[IO[str]]:
    """What ``status --watch`` writes into a pipe, until Ctrl-C ends it well."""
    process = subprocess.Popen(
        [sys.executable, "-m", "boxengine", "status", "--watch", *options, "--interval", "0.1"],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()


def test_watch_writes_each_look_into_a_pipe(project: Project) -> None:
    with watching(project) as output:
        looks = (line.split() for line in output if line.startswith("order_outbox_item"))
        assert next(looks)[2] == "0"
        project.fill(4)
        while next(looks)[2] != "4":
            pass


def test_watch_shows_what_is_wrong_on_a_screen_that_is_too_low_for_all_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Out(status._Look):
        def rows(self) -> list[dict[str, Any]]:
            self.problems = ["Redis does not answer"]
            return [row_of(f"box_{number}_outbox_item") for number in range(50)]

    screen = io.StringIO()
    low = Console(file=screen, force_terminal=True, width=200, height=10)
    monkeypatch.setattr(status, "output", lambda: low)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: True))
    seen = list[str]()

    def wait(_seconds: float) -> bool:
        seen.append(screen.getvalue())
        return True

    status._watch(Out(None, None, None), wait, 0, as_json=False)
    assert re.search(r"as of \d\d:\d\d:\d\d", seen[0]), (
        "nobody takes an old view for a new one while a server is silent"
    )
    assert "Redis does not answer" in seen[0]
    assert "box_49_outbox_item" not in seen[0]


def test_watch_looks_again_until_it_is_interrupted(project: Project) -> None:
    with watching(project, "--json") as output:
        assert json.loads(output.readline())[0]["pending"] == 0
        project.fill(4)
        while json.loads(output.readline())[0]["pending"] != 4:
            pass
