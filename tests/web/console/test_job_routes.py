"""Long jobs over HTTP: trigger, status, cancel, and what monitors ask."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry import trace

import boxengine
from tests.eventually import eventually
from tests.web.console.asgi import Answer
from tests.web.console.conftest import READ, Console

TRIGGER = "/api/v1/jobs/trigger"


def trigger(console: Console, task: str = "export", **more: Any) -> Answer:
    return console.client().post(TRIGGER, {"queue": "report_job", "task": task, **more})


def status(console: Console, job_id: str) -> Any:
    answer = console.client().get(f"/api/v1/jobs/{job_id}/status")
    assert answer.status == 200, answer.text
    return answer.json


def test_trigger_status_cancel_over_http(each_job_console: Console) -> None:
    console = each_job_console
    triggered = trigger(console, "wait", args={"a": 1})
    assert (triggered.status, triggered.json) == (200, {"job_id": "report-job:1", "status": "queued"})
    found = status(console, "report-job:1")
    assert {name: found[name] for name in ("job_id", "status", "attempt", "started_at", "progress", "error")} == {
        "job_id": "report-job:1",
        "status": "queued",
        "attempt": 0,
        "started_at": None,
        "progress": {},
        "error": None,
    }
    with boxengine.running(console.boxes, boxes=["report_job"]):
        eventually(lambda: status(console, "report-job:1")["progress"] == {"done": 2, "total": 7})
        found = status(console, "report-job:1")
        assert (found["status"], found["attempt"], found["cancel_requested"]) == ("running", 1, False)
        assert found["heartbeat_at"] >= found["started_at"]
        asked = console.client().post("/api/v1/jobs/report-job:1/cancel")
        assert (asked.status, asked.json["cancel_requested"]) == (200, True)
        eventually(lambda: status(console, "report-job:1")["status"] == "canceled")
    assert status(console, "report-job:1")["finished_at"] is not None
    deeds = [(deed["action"], deed["box"], deed["what"]) for deed in console.client().get("/api/trail").json]
    assert deeds == [("cancel", "report_job", "job 1")], "what programs trigger pushes nothing off the trail"


@pytest.mark.parametrize(
    ("sent", "application", "expected"),
    [("ab", None, "ab"), ("ab", "ef", "ef"), ("nonsense", None, None)],
    ids=["the caller's", "the application's span, which is below the caller's", "none, for what is sent names none"],
)
def test_a_job_that_is_triggered_continues_the_trace(
    job_console: Console, sent: str, application: str | None, expected: str | None
) -> None:
    client = job_console.client()
    within, app = trace.INVALID_SPAN, client.app
    if application is not None:
        ids = trace.SpanContext(int(application * 16, 16), 1, is_remote=False)
        within = trace.NonRecordingSpan(ids)

    async def traced(*call: Any) -> None:
        with trace.use_span(within):
            await app(*call)

    client.app = traced
    parent = f"00-{sent * 16}-{'cd' * 8}-01"
    assert client.post(TRIGGER, {"queue": "report_job", "task": "export"}, traceparent=parent).status == 200
    found = client.get("/api/boxes/report-job/jobs/1").json["trace_id"]
    assert found == (None if expected is None else expected * 16)


def test_a_job_that_is_triggered_has_what_was_sent(job_console: Console) -> None:
    sent: dict[str, Any] = {
        "args": {"rows": 3, "nested": [None, {"é": 1.5}]},
        "lock_key": "k",
        "partition_key": "p",
        "consumer_group": "g",
        "priority": -5,
        "available_at": "2030-01-31T12:00:00+02:00",
        "max_attempts": 2,
        "lease_ttl": 30,
    }
    assert trigger(job_console, **sent).status == 200
    row: Any = job_console.app.state.site.office.inspector.get(job_console.boxes.resolved.jobs["report_job"].box, 1)
    assert {name: row[name] for name in sent if name != "available_at"} == {
        name: value for name, value in sent.items() if name != "available_at"
    }
    assert row["available_at"].isoformat() == "2030-01-31T10:00:00+00:00"
    assert row["producer"] == "token (operate)"


def test_the_same_idempotency_key_is_the_same_job(each_job_console: Console) -> None:
    first = trigger(each_job_console, idempotency_key="upload 7")
    each_job_console.client().post(f"/api/v1/jobs/{first.json['job_id']}/cancel")
    again = trigger(each_job_console, idempotency_key="upload 7")
    assert again.json == {"job_id": first.json["job_id"], "status": "canceled"}


def test_a_finished_job_stays_as_it_is_when_somebody_cancels_it(job_console: Console) -> None:
    job_id = trigger(job_console).json["job_id"]
    job_console.change_jobs(status="succeeded")
    answer = job_console.client().post(f"/api/v1/jobs/{job_id}/cancel")
    assert (answer.status, answer.json["status"], answer.json["cancel_requested"]) == (200, "succeeded", False)
    assert job_console.client().get("/api/trail").json == []


def test_a_job_over_http_waits_for_those_it_was_created_after(job_console: Console) -> None:
    first = trigger(job_console).json["job_id"]
    assert trigger(job_console, after=[first]).json == {"job_id": "report-job:2", "status": "queued"}
    assert trigger(job_console, after=[1, "report-job:2"], after_failure="run").status == 200
    assert status(job_console, first)["waits_for"] == []
    assert status(job_console, "report-job:2")["waits_for"] == [first]
    assert status(job_console, "report-job:3")["waits_for"] == [first, "report-job:2"]


SENSELESS: list[tuple[dict[str, Any], int, str]] = [
    ({}, 400, "queue: expected the name of a job box"),
    ({"queue": "nope", "task": "export"}, 404, "unknown box 'nope'; known boxes: report_job"),
    ({"queue": "report_job"}, 400, "task: expected the name of a task"),
    ({"queue": "report_job", "task": "nope"}, 400, "no task 'nope'; known: export, wait"),
    ({"queue": "report_job", "task": "export", "colour": 1}, 400, "'colour' is not known here"),
    ({"queue": "report_job", "task": "export", "priority": "high"}, 400, "priority: expected a whole number"),
    ({"queue": "report_job", "task": "export", "delay": 1e300}, 400, "delay: expected seconds"),
    ({"queue": "report_job", "task": "export", "lease_ttl": 1}, 400, "lease_ttl: expected whole seconds from 3"),
    ({"queue": "report_job", "task": "export", "available_at": "soon"}, 400, "available_at: expected a moment"),
    (
        {"queue": "report_job", "task": "export", "available_at": "2030-01-31T12:00Z", "delay": 5},
        400,
        "delay and available_at exclude each other",
    ),
    ({"queue": "report_job", "task": "export", "after": 7}, 400, "after: expected a list of jobs' ids"),
    ({"queue": "report_job", "task": "export", "after": ["other:7"]}, 400, "after: expected"),
    ({"queue": "report_job", "task": "export", "after": [7]}, 400, "after: there is no job 7"),
    ({"queue": "report_job", "task": "export", "after_failure": "x"}, 400, "after_failure: expected cancel or run"),
    ({"queue": "report_job", "task": "export", "args": "\ud800"}, 400, "args: holds a character"),
    ({"queue": "report_job", "task": "export", "lock_key": "\0"}, 400, "lock_key: holds a character"),
]


def test_a_trigger_that_makes_no_sense_gets_a_sentence_and_no_job(job_console: Console) -> None:
    for sent, code, expected in SENSELESS:
        answer = job_console.client().post(TRIGGER, sent)
        assert (answer.status, expected in answer.json["error"]) == (code, True), answer.text
    assert job_console.client().get("/status").json["queues"][0]["total"]["number"] == 0


def test_arguments_that_the_database_refuses_are_told_to_whoever_sent_them(each_job_console: Console) -> None:
    for args in ("\0", json.loads("[" * 900 + "]" * 900)):
        answer = trigger(each_job_console, args=args)
        assert answer.status in (200, 400), answer.text


def test_an_id_that_is_none_is_refused(job_console: Console) -> None:
    for job_id, code in {"1": 400, "report-job": 400, "report-job:": 400, "report-job:x": 400, ":1": 404}.items():
        answer = job_console.client().get(f"/api/v1/jobs/{job_id}/status")
        assert (answer.status, answer.json["error"][-1]) == (code, "."), job_id


def test_a_job_that_is_not_there_is_not_found(job_console: Console) -> None:
    for method, path in (("GET", "status"), ("POST", "cancel")):
        answer = job_console.client().call(method, f"/api/v1/jobs/report-job:99/{path}")
        assert (answer.status, answer.json["error"].startswith("report_job has no job 99")) == (404, True)


# ── who may ──────────────────────────────────────────────────────────────────────────────────────────


def test_who_only_looks_changes_nothing_and_who_is_nobody_sees_nothing(job_console: Console) -> None:
    job_id = trigger(job_console).json["job_id"]
    new, cancel = {"queue": "report_job", "task": "export"}, f"/api/v1/jobs/{job_id}/cancel"
    reader, nobody = job_console.client(READ), job_console.client(None)
    assert (reader.post(TRIGGER, new).status, reader.post(cancel).status) == (403, 403)
    assert reader.get(f"/api/v1/jobs/{job_id}/status").status == 200
    assert reader.get("/status").status == 200
    assert [nobody.post(TRIGGER, new).status, nobody.post(cancel).status, nobody.get("/status").status] == [401] * 3
    assert nobody.get(f"/api/v1/jobs/{job_id}/status").status == 401
    assert status(job_console, job_id)["status"] == "queued"


def test_a_browser_that_another_site_leads_here_triggers_nothing(job_console: Console) -> None:
    browser, new = job_console.browser(), {"queue": "report_job", "task": "export"}
    assert browser.post(TRIGGER, new).status == 403
    assert browser.post(TRIGGER, new, origin="https://evil.example").status == 403
    assert job_console.client().get("/status").json["queues"][0]["total"]["number"] == 0
    assert browser.press("/", TRIGGER, **new).status == 200


# ── what monitors ask ────────────────────────────────────────────────────────────────────────────────


def test_health_asks_no_database_and_nobody_who_it_is(job_console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the health of a process is its own")

    with monkeypatch.context() as patched:
        patched.setattr(job_console.servers.store.engine, "connect", refuse)
        patched.setattr(job_console.app.state.site.access, "visit", refuse)
        patched.setattr("boxengine.web.console.calls.run_in_threadpool", refuse)
        answer = job_console.client(None).get("/health")
    assert (answer.status, answer.json) == (200, {"status": "ok"})


def test_status_counts_what_waits_and_what_runs(each_job_console: Console) -> None:
    console = each_job_console
    for _ in range(4):
        console.create_job()
    console.create_job(delay=60)
    console.change_jobs("id = 1", status="running")
    console.change_jobs("id = 2", status="queued", waits=2)
    console.change_jobs("id = 3", status="lost")
    (queue,) = console.client().get("/status").json["queues"]
    numbers = {name: value["number"] for name, value in queue.items() if isinstance(value, dict)}
    assert numbers == {
        "total": 4,
        "ready": 1,
        "taken": 1,
        "delayed": 1,
        "blocked": 1,
        "failed": 0,
        "canceled": 0,
        "lost": 1,
        "succeeded": 0,
    }
    assert (queue["queue"], queue["ready"]["precision"]) == ("report_job", "exact")
    assert queue["lag_seconds"] >= 0


def test_a_password_in_an_error_is_masked(job_console: Console) -> None:
    job_id = trigger(job_console).json["job_id"]
    job_console.change_jobs(status="failed", error="no answer from https://me:s3cret@shop.example/")
    assert status(job_console, job_id)["error"] == "no answer from https://me:***@shop.example/"
