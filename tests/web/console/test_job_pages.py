"""Long jobs in the console: seen, searched, canceled and run again, by people and by programs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from msgspec import msgpack

import boxengine
from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.limiting import shortly
from boxengine.app.overview import looking
from boxengine.domain.jobs import JobBox
from boxengine.errors import StoreUnavailable
from boxengine.ports import WorkerInfo
from boxengine.ports.people.jobs import JobCounts
from boxengine.web.console import site
from tests.eventually import eventually
from tests.web.console.asgi import Client
from tests.web.console.conftest import JOBS, READ, Console

BOX = "/boxes/report-job"
API = "/api/boxes/report-job/jobs"
HTML = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{7*7}}"""


def act(browser: Client, action: str, job_id: int) -> str:
    """Presses the button on the job's page, and the one that confirms; returns the page it leads to."""
    fields = browser.get(f"{BOX}/jobs/{job_id}").hidden
    question = browser.get(f"{BOX}/jobs/act?{urlencode({**fields, 'action': action})}")
    answer = browser.post(f"{BOX}/jobs/act", question.hidden, form=True)
    assert (answer.status, answer.headers["location"]) == (303, f"{BOX}/jobs/{job_id}"), answer.text
    return browser.get(f"{BOX}/jobs/{job_id}").text


def states(console: Console) -> dict[int, str]:
    listed = console.client().get(API).json["jobs"]
    return {job["id"]: job["status"] for job in listed}


@pytest.mark.parametrize(
    "address", ["https://traces.example/{trace_id}?from=boxengine", None], ids=["with an address", "without one"]
)
def test_the_page_of_an_item_and_of_a_job_lead_to_the_traces_of_their_creation(
    make_console: Callable[..., Console], postgres_url: str, address: str | None
) -> None:
    headers = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    shown = "" if address is None else f'trace_url: "{address.replace("{", "{{").replace("}", "}}")}", '
    console = make_console(postgres_url, JOBS.replace("console: {{", f"console: {{{{{shown}", 1))
    console.create("order_outbox_item", {"event_key": "17", "payload": b"{}", "options": {"headers": headers}})
    console.create_job()
    console.create_job()
    console.change_jobs("id = 1", trace_context=json.dumps(headers))
    console.change_jobs("id = 2", trace_context='["no headers"]')
    link = "ab" * 16 if address is None else f'href="{address.replace("{trace_id}", "ab" * 16)}"'
    browser, client = console.browser(), console.client()
    for page in ("/boxes/order-outbox-item/items/1", f"{BOX}/jobs/1"):
        assert link in browser.get(page).text
    assert "Trace</dt>" not in browser.get(f"{BOX}/jobs/2").text
    assert [client.get(f"{API}/{job}").json["trace_id"] for job in (1, 2)] == ["ab" * 16, None]


def test_a_failed_job_is_found_from_the_overview_understood_and_run_again(each_job_console: Console) -> None:
    console = each_job_console
    console.create_job(args={"rows": 3, "fail": 2}, max_attempts=1)
    browser = console.browser()
    with boxengine.running(console.boxes, boxes=["report_job"]):
        eventually(lambda: states(console) == {1: "failed"})
        overview = browser.get("/").text
        assert "1 job of report_job failed, and no attempt is left." in overview
        assert "/boxes/report-job/jobs?status=failed" in overview
        page = browser.get(f"{BOX}/jobs/1").text
        assert "It failed, after 1 attempt: RuntimeError: no answer from https://me:***@shop.example/" in page
        assert "2 of 3" in page, "its progress"
        assert "s3cret" not in page
        before = console.client().get(f"{API}/1").json
        assert (before["checkpoint"], [event["kind"] for event in before["journal"]]) == (
            2,
            ["queued", "picked", "failed"],
        )
        console.change_jobs("id = 1", args=json.dumps({"rows": 3}))
        act(browser, "retry", 1)
        eventually(lambda: states(console) == {1: "succeeded"})
    after = console.client().get(f"{API}/1").json
    assert (after["result"], after["progress"], after["attempt"]) == ({"rows": 3}, {"done": 3, "total": 3}, 1)
    trail = console.client().get("/api/trail").json
    assert [(deed["who"], deed["action"], deed["what"], deed["outcome"]) for deed in trail] == [
        ("Zoë", "retry", "job 1", "queued again")
    ]


def test_an_old_page_does_not_run_a_job_again_that_has_since_succeeded(job_console: Console) -> None:
    job_console.create_job()
    job_console.change_jobs(status="failed")
    browser = job_console.browser()
    seen = browser.get(f"{BOX}/jobs/1").hidden
    assert (seen["id"], seen["status"]) == ("1", "failed")
    by_hand = f"{BOX}/jobs/act?action=retry&id=1"
    question = browser.get(by_hand)
    assert '<span class="status failed">failed</span>' in question.text
    job_console.change_jobs(status="succeeded")
    answer = browser.post(f"{BOX}/jobs/act", question.hidden, form=True)
    assert (answer.status, states(job_console)) == (303, {1: "succeeded"})
    asked_late = browser.get(f"{by_hand}&status=failed").text
    assert "There is nothing to retry." in asked_late
    assert '<span class="status delivered">succeeded</span>' in asked_late
    trail = job_console.client().get("/api/trail").json
    assert [deed["outcome"] for deed in trail] == ["left alone: its status had changed"]
    act(browser, "retry", 1)
    assert states(job_console) == {1: "queued"}, "whoever sees that it succeeded may run it again"


def test_a_job_that_began_while_somebody_was_asked_is_canceled_all_the_same(job_console: Console) -> None:
    job_console.create_job()
    browser = job_console.browser()
    question = browser.get(f"{BOX}/jobs/act?action=cancel&id=1")
    job_console.change_jobs(status="running")
    assert browser.post(f"{BOX}/jobs/act", question.hidden, form=True).status == 303
    assert job_console.client().get(f"{API}/1").json["cancel_requested"] is True


def test_a_running_job_is_asked_to_stop_and_its_page_says_so(job_console: Console) -> None:
    job_console.create_job("wait")
    browser = job_console.browser()
    assert "It waits for an idle thread of a worker." in browser.get(f"{BOX}/jobs/1").text
    with boxengine.running(job_console.boxes, boxes=["report_job"]):
        eventually(lambda: "2 of 7" in browser.get(f"{BOX}/jobs/1").text)
        page = browser.get(f"{BOX}/jobs/1").text
        assert 'hx-get="/boxes/report-job/jobs/1"' in page, "it renews itself"
        act(browser, "cancel", 1)
        eventually(lambda: states(job_console) == {1: "canceled"})
    page = browser.get(f"{BOX}/jobs/1").text
    assert "It was canceled." in page
    assert "hx-get" not in page, "nothing will change"


def test_a_job_page_goes_by_the_clock_of_the_database(job_console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        job_console.create_job(delay=300)
    job_console.change_jobs("id = 1", status="running", attempt=1, worker="w")
    with job_console.engine.begin() as connection:
        connection.execute(sa.text("UPDATE report_jobs SET lease_expires_at = now() + interval '60 s' WHERE id = 1"))
    monkeypatch.setattr(job_console.servers.clock, "now", lambda: datetime.now(UTC) + timedelta(minutes=10))
    running, delayed = (job_console.client().get(f"{API}/{each}").json["why"] for each in (1, 2))
    assert running == ["It runs, in attempt 1 of 5, in the process w."]
    assert delayed[0].startswith("It waits for its time, in ")
    browser = job_console.browser()
    assert "fell silent" not in browser.get(f"{BOX}/jobs/1").text
    assert "It waits for its time, in " in browser.get(f"{BOX}/jobs/2").text


def test_a_job_behind_a_lock_key_names_the_one_it_waits_for(job_console: Console) -> None:
    job_console.create_job(lock_key="k")
    job_console.create_job(lock_key="k")
    job_console.change_jobs("id = 1", status="running", holds="k")
    job_console.change_jobs("id = 2", waits=2)
    found = job_console.client().get(f"{API}/2").json
    assert (found["why"], found["held_by"]) == (["It waits for job 1, which holds its lock key."], 1)
    assert "Job 1</a> goes first." in job_console.browser().get(f"{BOX}/jobs/2").text


def test_a_job_that_waits_for_others_names_them(job_console: Console) -> None:
    for _ in range(2):
        job_console.create_job()
    job_console.create_job(after=[1, 2])
    found = job_console.client().get(f"{API}/3").json
    assert found["why"] == ["It waits until these jobs have ended: 1 (queued), 2 (queued)."]
    assert found["waits_for"] == [1, 2]
    page = job_console.browser().get(f"{BOX}/jobs/3").text
    assert f'<a href="{BOX}/jobs/2">Job 2</a>' in page
    job_console.change_jobs("id = 3", status="canceled", error="job 1, for which it waited, failed")
    (sentence,) = job_console.client().get(f"{API}/3").json["why"]
    assert sentence == "It was canceled before it began: job 1, for which it waited, failed."


def test_all_jobs_of_a_search_are_acted_on_with_their_number_asked_first(each_job_console: Console) -> None:
    console = each_job_console
    for number in range(7):
        console.create_job(lock_key="odd" if number % 2 else "even", delay=3600)
    browser = console.browser()
    question = browser.get(f"{BOX}/jobs/act?action=cancel&status=queued&lock_key=odd").text
    assert "Cancel 3 jobs?" in question
    assert states(console) == dict.fromkeys(range(7, 0, -1), "queued"), "nothing is done yet"
    begun = browser.press("/", f"{BOX}/jobs/act", action="cancel", status="queued", lock_key="odd")
    assert "3 jobs canceled or asked to stop." in browser.get(begun.headers["location"]).text
    assert [job for job, state in states(console).items() if state == "canceled"] == [6, 4, 2]
    client = console.client()
    sent = {"action": "retry", "filter": {"status": ["canceled"]}}
    assert client.post(f"{API}/actions", {**sent, "dry_run": True}).json == {"number": 3, "precision": "exact"}
    assert client.post(f"{API}/actions", sent).json["outcome"] == "3 jobs queued again"
    assert set(states(console).values()) == {"queued"}
    for names, ids in ((["queued"], []), ([], [1])):
        refused = client.post(f"{API}/actions", {"action": "cancel", "filter": {"status": names, "id": ids}})
        assert (refused.status, "names nothing" in refused.json["error"]) == (400, True)
    assert set(states(console).values()) == {"queued"}, "an empty list does not mean everything"


def test_an_action_on_a_period_before_now_takes_what_was_asked_about_however_late_it_is_confirmed(
    job_console: Console,
) -> None:
    asked_about = job_console.create_job()
    browser = job_console.browser()
    question = browser.get(f"{BOX}/jobs/act?action=cancel&status=queued&to=PT0S")
    assert "Cancel 1 job?" in question.text
    later = job_console.create_job()
    browser.post(f"{BOX}/jobs/act", question.hidden, form=True)
    assert states(job_console) == {later: "queued", asked_about: "canceled"}


def test_an_action_takes_no_more_jobs_than_its_question_has_counted(job_console: Console) -> None:
    asked_about = [job_console.create_job() for _ in range(2)]
    browser = job_console.browser()
    question = browser.get(f"{BOX}/jobs/act?action=cancel&status=queued")
    assert "Cancel 2 jobs?" in question.text
    later = job_console.create_job()
    browser.post(f"{BOX}/jobs/act", question.hidden, form=True)
    assert states(job_console) == {later: "queued", **dict.fromkeys(asked_about, "canceled")}


def test_a_search_for_two_states_is_acted_on_as_it_is_shown(job_console: Console) -> None:
    for _ in range(3):
        job_console.create_job()
    job_console.change_jobs("id = 1", status="failed")
    job_console.change_jobs("id = 2", status="lost")
    browser = job_console.browser()
    found = browser.get(f"{BOX}/jobs?status=failed&status=lost").text
    assert found.count('<input type="hidden" name="status" value="lost">') == 1
    question = browser.get(f"{BOX}/jobs/act?action=retry&status=failed&status=lost").text
    assert "Retry 2 jobs?" in question
    assert (
        '<input type="hidden" name="status" value="failed"><input type="hidden" name="status" value="lost">' in question
    )


def test_keys_keep_their_capitals_in_a_question(job_console: Console) -> None:
    job_console.create_job(lock_key="ORDER-17A")
    job_console.create("order_outbox_item", event_key="ORDER-17A")
    browser = job_console.browser()
    asked = browser.get(f"{BOX}/jobs/act?action=cancel&status=queued&lock_key=ORDER-17A").text
    assert "Queued jobs, with lock key ORDER-17A" in asked
    begun = browser.press("/", f"{BOX}/jobs/act", action="cancel", status="queued", lock_key="ORDER-17A")
    assert "Queued jobs, with lock key ORDER-17A of report_job" in browser.get(begun.headers["location"]).text
    items = browser.get("/boxes/order-outbox-item/act?action=discard&status=pending&key=ORDER-17A").text
    assert "Pending items, of key ORDER-17A" in items


def test_jobs_are_found_by_time_and_counted_exactly_on_request(
    each_job_console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = each_job_console
    monkeypatch.setattr(site, "COUNTED_TO", 3)
    for _ in range(9):
        console.create_job()
    for job, at in ((1, 10), (2, 11), (3, 12), (4, 13)):
        console.change_jobs(f"id = {job}", created_at=f"2026-01-01 {at}:00:00")
    console.change_jobs("id > 3", status="failed")
    browser, client = console.browser(), console.client()
    period = "from=2026-01-01T11:00Z&to=2026-01-01T13:00Z"
    assert [job["id"] for job in client.get(f"{API}?{period}").json["jobs"]] == [3, 2]
    assert client.get(f"{API}/count?{period}").json == {"number": 2, "precision": "exact"}
    page = browser.get(f"{BOX}/jobs?{period}").text
    assert f"{BOX}/jobs/2" in page
    assert f"{BOX}/jobs/4" not in page
    assert 'value="2026-01-01T11:00Z"' in page, "the search stays in its form"
    page = browser.get(f"{BOX}/jobs?status=failed").text
    assert "Over 3 jobs" in page
    assert "Count exactly" in page
    begun = browser.press(f"{BOX}/jobs?status=failed", f"{BOX}/jobs/count", status="failed")
    assert "Exactly 6 jobs." in browser.get(begun.headers["location"]).text
    counted = client.post(f"{API}/count", {"filter": {"status": ["failed"], "from": "2026-01-02T00:00Z"}}).json
    assert (counted["outcome"], counted["what"]) == (
        "exactly 5 jobs",
        "failed jobs, created since 2026-01-02T00:00:00.000000Z",
    )
    for wrong in ("yesterday", "PT", "2026-13-01"):
        answer = client.get(f"{API}?from={wrong}")
        assert (answer.status, "from: expected a moment" in answer.json["error"]) == (400, True), answer.text


def test_what_an_action_is_not_for_is_refused(job_console: Console) -> None:
    job_console.create_job()
    client = job_console.client()
    for sent, code, expected in (
        ({"action": "delete"}, 400, "action: expected cancel, retry"),
        ({"action": "retry", "filter": {"status": ["queued"]}}, 409, "retry is not for queued jobs"),
        ({"action": "cancel"}, 409, "name a status or ids of the jobs to cancel"),
        ({"action": "cancel", "filter": {"colour": 1}}, 400, "'colour' is not known here"),
    ):
        answer = client.post(f"{API}/actions", sent)
        assert (answer.status, expected in answer.json["error"]) == (code, True), answer.text
    assert client.post(f"{API}/1/retry").status == 409
    assert client.post(f"{API}/9/cancel").status == 404
    assert client.get("/boxes/report-job/jobs/9").status == 404
    assert states(job_console) == {1: "queued"}


def test_who_only_looks_has_no_buttons_and_cannot_act(job_console: Console) -> None:
    job_console.create_job()
    reader = job_console.browser(READ)
    for path in (f"{BOX}/jobs/1", f"{BOX}/jobs?status=queued"):
        page = reader.get(path)
        assert (page.status, "Cancel" in page.text) == (200, False), path
    assert reader.press("/", f"{BOX}/jobs/act", action="cancel", id=1).status == 403
    assert job_console.client(READ).post(f"{API}/1/cancel").status == 403
    assert job_console.browser().post(f"{BOX}/jobs/act", {"action": "cancel", "id": 1}, form=True).status == 403
    assert states(job_console) == {1: "queued"}


def test_html_in_every_field_of_a_job_is_text_and_hidden_values_are_hidden(
    make_console: Callable[..., Console], postgres_url: str
) -> None:
    console = make_console(postgres_url, JOBS.replace("hide: {{", "hide: {{report_job: [customer.email], "))
    args = {HTML: HTML, "customer": {"email": "zoe@example.com"}, "api_key": "s3cret"}
    encoded = base64.b64encode(msgpack.encode(args)).decode()
    console.create_job(args={"contract": 7, "msgpack": encoded})
    console.create_job(args={"contract": 7, "msgpack": encoded[1:]})
    console.create_job(args=args, lock_key=HTML, producer=HTML, idempotency_key=HTML)
    told = json.dumps({HTML: HTML, "done": HTML, "total": 1})
    console.change_jobs(status="failed", error=HTML, progress=told, checkpoint=json.dumps(HTML), worker=HTML)
    browser = console.browser()
    jobs = [f"{BOX}/jobs/{job_id}" for job_id in (1, 2, 3)]
    for path in ("/", BOX, f"{BOX}/jobs", *jobs, f"{BOX}/jobs/act?action=retry&id=1"):
        answer = browser.get(path)
        assert answer.status == 200, path
        for harm in ("<script>alert", "<img", "zoe@example.com", "s3cret", encoded[1:]):
            assert harm not in answer.text, (path, harm)
    assert "customer" in browser.get(jobs[0]).text
    for job_id in (1, 2, 3):
        whole = console.client().get(f"{API}/{job_id}").text
        for harm in ("zoe@example.com", "s3cret", encoded[1:]):
            assert harm not in whole


@pytest.mark.parametrize(
    ("value", "in_api", "on_page"),
    [("zoe@example.com", "***", "Hidden by the configuration"), (100, 100, ">100</pre>")],
)
def test_where_key_paths_are_hidden_a_bare_text_is_hidden_everywhere_and_a_bare_number_shows(
    make_console: Callable[..., Console], postgres_url: str, value: str | int, in_api: str | int, on_page: str
) -> None:
    console = make_console(postgres_url, JOBS.replace("hide: {{", "hide: {{report_job: [customer.email], "))
    console.create_job()
    console.change_jobs(status="succeeded", checkpoint=json.dumps(value), result=json.dumps(value))
    whole = console.client().get(f"{API}/1").json
    assert (whole["checkpoint"], whole["result"]) == (in_api, in_api)
    assert console.client().get("/api/v1/jobs/report-job:1/status").json["result"] == in_api
    page = console.browser().get(f"{BOX}/jobs/1").text
    assert page.count(on_page) == 2
    assert "zoe@example.com" not in page


def test_one_box_of_long_jobs_is_shown_to_programs(job_console: Console) -> None:
    job_console.create_job()
    found = job_console.client().get("/api/boxes/report-job").json
    assert (found["id"], found["type"], found["counts"]["ready"]["number"]) == ("report-job", "job", 1)
    assert job_console.client().get("/api/boxes/order-outbox-item").json["id"] == "order-outbox-item"
    assert job_console.client().get("/api/boxes/nobody-job").status == 404


def test_a_console_of_job_boxes_alone_asks_no_redis(make_console: Callable[..., Console], postgres_url: str) -> None:
    configuration = """
database: {{url: "{database}"}}
redis: {{url: "redis://127.0.0.1:1/0"}}
console: {{operate_token: {operate}, read_token: {read}}}
job_items: {{report_job: {{tasks: {{export: tests.web.console.reports.export}}}}}}
"""
    console = make_console(postgres_url, configuration)
    console.create_job()
    overview = console.client().get("/api/overview").json
    assert (overview["problems"], overview["outages"]) == ([], [])
    assert overview["jobs"][0]["counts"]["ready"]["number"] == 1
    page = console.browser().get("/").text
    assert "All is well" in page
    act(console.browser(), "cancel", 1)
    assert states(console) == {1: "canceled"}, "the trail is then in the log alone"


def test_where_jobs_wait_and_none_runs_the_advice_says_whether_a_worker_lives(job_console: Console) -> None:
    site, now = job_console.app.state.site, job_console.servers.clock.now()
    job_console.create_job()
    job_console.change_jobs(available_at=now - timedelta(hours=1))

    def told() -> str:
        site.changed(site.office.boxes[0])
        return str(job_console.browser().get(BOX).text)

    assert "1 job of report_job could begin, the oldest for 1 h" in told()
    assert "Start a worker for it: boxengine start." in told()
    worker = WorkerInfo(id="w", host="h", pid=1, boxes=(), threads=2, started_at=now, job_boxes=("report_job",))
    site.office.workers.announce(worker, ttl=timedelta(minutes=1))
    assert "A worker runs but takes none of them: its log says why." in told()
    assert job_console.client().get("/api/workers").json[0]["job_boxes"] == ["report_job"]
    (box,) = job_console.client().get("/api/overview").json["jobs"]
    assert box["workers"] == ["w"]


def test_a_worker_of_both_kinds_is_listed_once(job_console: Console) -> None:
    servers, office = job_console.servers, job_console.app.state.site.office
    worker = WorkerInfo(
        id="w",
        host="h",
        pid=1,
        boxes=("order_outbox_item",),
        threads=2,
        started_at=servers.clock.now(),
        job_boxes=("report_job",),
    )
    for announced_in in (servers.workers, office.workers):
        announced_in.announce(worker, ttl=timedelta(minutes=1))
    overview = job_console.client().get("/api/overview").json
    assert [each["id"] for each in overview["workers"]] == ["w"]
    assert [box["workers"] for box in overview["jobs"]] == [["w"]]


@pytest.fixture(params=["postgresql", "mysql"])
def two_job_boxes(request: pytest.FixtureRequest, make_console: Callable[..., Console]) -> Console:
    """A console with two boxes of long jobs; the tables of the second one are not there yet."""
    name = "postgres_url" if request.param == "postgresql" else "mysql_url"
    console = make_console(
        request.getfixturevalue(name), JOBS + "  mail_job: {{tasks: {{export: tests.web.console.reports.export}}}}"
    )
    with console.engine.begin() as connection:
        for table in ("mail_jobs_after", "mail_jobs_schedules", "mail_jobs_events", "mail_jobs"):
            connection.execute(sa.text(f"DROP TABLE IF EXISTS {table}"))
    return console


def test_a_box_without_tables_is_a_problem_of_that_box_alone(two_job_boxes: Console) -> None:
    console, now = two_job_boxes, two_job_boxes.servers.clock.now()
    worker = WorkerInfo(id="w", host="h", pid=1, boxes=(), threads=2, started_at=now, job_boxes=("report_job",))
    console.app.state.site.office.workers.announce(worker, ttl=timedelta(minutes=1))
    overview = console.client().get("/api/overview").json
    assert overview["outages"] == []
    (told,) = [each for each in overview["problems"] if each["kind"] == "table"]
    assert (told["box"], told["sentence"][:27]) == ("mail_job", "mail_job cannot work: the d")
    assert [(box["name"], box["workers"]) for box in overview["jobs"]] == [("report_job", ["w"]), ("mail_job", [])]
    assert [each["id"] for each in overview["workers"]] == ["w"]
    assert "mail_job cannot work" in console.browser().get("/boxes/mail-job").text


def test_a_count_that_takes_too_long_is_a_problem_of_that_box_alone(each_job_console: Console) -> None:
    console = each_job_console
    office, engine = console.app.state.site.office, console.servers.store.engine
    sleep = "pg_sleep(60)" if engine.dialect.name == "postgresql" else "sleep(60)"

    def counts(box: JobBox, *, limit: int | None) -> JobCounts:
        with translated(engine), engine.connect() as connection, shortly(connection, timedelta(milliseconds=20)):
            raise AssertionError(connection.execute(sa.text(f"SELECT {sleep} FROM {box.table}")).all())

    console.create_job()
    office.inspector.counts = counts
    overview = console.client().get("/api/overview").json
    assert overview["outages"] == []
    (told,) = [each for each in overview["problems"] if each["kind"] == "unread"]
    assert told["sentence"].startswith("The numbers of report_job are incomplete: the database: ")


def test_while_the_workers_of_long_jobs_are_unknown_no_box_is_said_to_have_none(job_console: Console) -> None:
    def living() -> list[WorkerInfo]:
        raise StoreUnavailable("the database: gone")

    job_console.app.state.site.office.workers.living = living
    overview = job_console.client().get("/api/overview").json
    assert [box["workers"] for box in overview["jobs"]] == [None]
    assert "no worker" not in job_console.browser().get("/").text.partition("Long jobs")[2]


def test_figures_of_long_jobs_that_are_not_of_now_carry_their_time(
    job_console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = job_console.browser()
    assert job_console.client().get("/api/overview").json["jobs"][0]["counted_at"] is None
    assert "figures" not in browser.get("/").text + browser.get(BOX).text
    monkeypatch.setattr(looking, "SHOWN_FROM", timedelta(0))
    job_console.app.state.site.live.now(fresh=True)
    assert "The figures of long jobs are of" in browser.get("/").text
    assert "the figures are of" in browser.get(BOX).text
    assert job_console.client().get("/api/overview").json["jobs"][0]["counted_at"]


def test_a_box_is_paused_and_resumed_on_its_page_and_by_programs(job_console: Console) -> None:
    browser, client, pauses = job_console.browser(), job_console.client(), job_console.app.state.site.office.pauses
    (box,) = job_console.app.state.site.office.boxes
    job_console.create_job()
    assert "none of its jobs begins" in browser.get(f"{BOX}/polling?decide=pause").text
    assert pauses.running(box) is None, "nobody has confirmed it yet"
    answer = browser.press(f"{BOX}/polling?decide=pause", f"{BOX}/polling", decide="pause")
    assert (answer.status, answer.headers["location"]) == (303, BOX)
    assert pauses.running(box) is False
    page = browser.get(BOX).text
    assert "report_job is paused, and 1 job could begin." in page
    assert "Resume</a>" in page
    assert client.get("/status").json["queues"][0]["paused"] is True
    assert client.post("/api/boxes/report-job/resume").json["paused"] is False
    assert pauses.running(box) is True
    assert client.post("/api/boxes/report-job/forget").json["paused"] is False
    assert pauses.running(box) is None
    assert job_console.client(READ).post("/api/boxes/report-job/pause").status == 403
    assert [deed["action"] for deed in client.get("/api/trail").json] == ["forget", "resume", "pause"]
