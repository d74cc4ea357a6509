"""Long jobs in a real browser: seen while they run, canceled, and run again."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

import boxengine
from boxengine.engine.running import heartbeat
from boxengine.ports import Engagement, WorkerInfo
from boxengine.version import __version__
from boxengine.web.console import site
from tests.eventually import eventually
from tests.web.browser.conftest import DESK, PHONE, Running
from tests.web.console.conftest import JOBS, Console

pytestmark = pytest.mark.xdist_group("browser")
BOX = "/boxes/report-job"
ERROR = "2026-01-31T12:00:00.000000Z export: Timeout: shop.example did not answer within 10 s\n"
ERROR += 'Traceback (most recent call last):\n  File "imports.py", line 41, in export\n    answer = client.get(url)'


@pytest.fixture
def jobs(serve: Callable[[Console], Running], make_console: Callable[..., Console], postgres_url: str) -> Running:
    """A console with a box of long jobs, which is empty."""
    return serve(make_console(postgres_url, JOBS))


def furnish(console: Console) -> None:
    """Jobs of every kind; 3 runs, and 5 waits for it."""
    for number in range(1, 11):
        console.create_job(args={"rows": 4200, "upload": f"orders-{number}.csv"}, lock_key=f"customer {number % 4}")
    now = datetime.now(UTC)
    console.change_jobs("id in (1, 2)", status="succeeded", started_at=now, finished_at=now + timedelta(minutes=4))
    console.change_jobs(
        "id = 3",
        status="running",
        attempt=2,
        token=2,
        worker="worker-1:4211",
        lock_key="customer 9",
        holds="customer 9",
        started_at=now - timedelta(minutes=3),
        heartbeat_at=now,
        lease_expires_at=now + timedelta(hours=1),
        checkpoint=json.dumps({"line": 1800}),
        progress=json.dumps({"done": 1812, "total": 4200, "skipped": 3}),
    )
    console.change_jobs("id = 4", status="failed", attempt=5, error=ERROR, finished_at=now)
    console.change_jobs("id = 5", waits=2, lock_key="customer 9")
    console.change_jobs("id = 6", waits=1, available_at=now + timedelta(hours=2))
    console.change_jobs("id = 7", status="lost", attempt=5, finished_at=now)
    worker = WorkerInfo(
        id="w1",
        host="worker-1",
        pid=4211,
        boxes=(),
        threads=4,
        started_at=now - timedelta(hours=5),
        version="1.4.0",
        at_work=(Engagement(box="report_job", threads=1, since=now - timedelta(minutes=3)),),
        job_boxes=("report_job",),
    )
    console.app.state.site.office.workers.announce(worker, ttl=timedelta(minutes=5))


@pytest.mark.parametrize(("width", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_every_page_of_long_jobs_is_free_of_faults(jobs: Running, scheme: str, width: int) -> None:
    furnish(jobs.console)
    tab = jobs.tab(width=width, scheme=scheme)
    tab.sign_in()
    pages = {
        "/": "jobs-overview",
        BOX: "job-box",
        f"{BOX}/jobs": "jobs",
        f"{BOX}/jobs/3": "job",
        f"{BOX}/jobs/4": "failed-job",
        f"{BOX}/jobs/act?action=cancel&id=3": "cancel-job",
        "/workers": "job-workers",
    }
    faults = {}
    for path, name in pages.items():
        tab.go(path)
        faults[path] = tab.faults()
        tab.shoot(f"console-{name}-{'phone' if width == PHONE else 'desk'}-{scheme}")
        if path == "/":
            assert tab.page.get_by_text("No worker runs for the outboxes and inboxes.").count() == 1
        if path == f"{BOX}/jobs":
            assert tab.page.get_by_label("Lock key, id or idempotency key").bounding_box()["width"] > 120
    assert {path: found for path, found in faults.items() if found} == {}


def test_a_box_and_a_job_are_watched_and_the_job_is_canceled_and_run_again(jobs: Running) -> None:
    page = jobs.tab().sign_in().go(BOX).page
    assert page.locator(".empty", has_text="No job runs.").count() == 1
    jobs.console.create_job("wait")
    page.locator(".tiles dd", has_text="1").first.wait_for()
    page.goto(f"{jobs.url}{BOX}/jobs/1")
    status = page.locator("h1 .status")
    assert status.inner_text() == "queued"
    with boxengine.running(jobs.console.boxes, boxes=["report_job"]):
        # The page renews itself; nobody loads it again.
        page.locator("h1 .status", has_text="running").wait_for()
        bar = page.locator("progress[value='2'][max='7']")
        bar.wait_for()
        assert page.evaluate("getComputedStyle(document.querySelector('progress')).height") == "10px"
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Cancel 1 job").click()
        page.wait_for_url(f"**{BOX}/jobs/1")
        page.locator("h1 .status", has_text="canceled").wait_for()
    assert page.locator(".attempts strong").all_inner_texts() == ["canceled", "picked", "queued"]
    page.get_by_role("button", name="Retry…").click()
    page.get_by_role("button", name="Retry 1 job").click()
    page.locator("h1 .status", has_text="queued").wait_for()
    eventually(lambda: [deed["action"] for deed in jobs.console.client().get("/api/trail").json] == ["retry", "cancel"])


def test_the_page_of_a_job_goes_on_renewing_itself_after_a_proxy_has_refused_to(jobs: Running) -> None:
    jobs.console.create_job("wait")
    tab = jobs.tab().sign_in().go(f"{BOX}/jobs/1")
    with tab.page.expect_response(lambda answer: answer.status == 502):
        tab.page.route(f"**{BOX}/jobs/1", lambda route: route.fulfill(status=502), times=1)
    jobs.console.change_jobs(status="canceled", finished_at=datetime.now(UTC))
    tab.page.locator("h1 .status", has_text="canceled").wait_for()
    assert tab.page.locator("#job[hx-get]").count() == 0


def test_what_somebody_reads_on_the_page_of_a_job_stays_where_it_is_while_the_rest_is_renewed(jobs: Running) -> None:
    jobs.console.create_job("wait", lock_key="customer 9")
    lines = json.dumps([f"line {number} {'x' * 300}" for number in range(300)])
    jobs.console.change_jobs(status="running", checkpoint=lines)
    page = jobs.tab().sign_in().go(f"{BOX}/jobs/1").page
    text = page.locator("pre[aria-labelledby=part-checkpoint]")
    text.focus()
    text.evaluate("""element => {
        element.scrollTop = 40;
        getSelection().setBaseAndExtent(element.firstChild, 10, element.firstChild, 25);
    }""")
    seen = "element => [element === document.activeElement, element.scrollTop, String(getSelection())]"
    before = text.evaluate(seen)
    assert (before[0], before[1], len(before[2])) == (True, 40, 15)
    jobs.console.change_jobs(progress=json.dumps({"done": 1812, "total": 4200}))
    page.get_by_role("heading", name="1,812 of 4,200").wait_for()
    assert text.evaluate(seen) == before
    page.get_by_role("link", name="customer 9").focus()
    jobs.console.change_jobs(progress=json.dumps({"done": 1813, "total": 4200}), attempt=2)
    page.get_by_role("heading", name="1,813 of 4,200").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "customer 9"


def test_a_hidden_page_of_a_job_asks_nothing_and_catches_up_when_it_is_shown(jobs: Running) -> None:
    jobs.console.create_job("wait")
    page = jobs.tab().sign_in().page
    page.clock.install()
    page.goto(f"{jobs.url}{BOX}/jobs/1")
    with page.expect_request(f"**{BOX}/jobs/1"):
        page.clock.run_for(2_000)
    page.locator("h1 .status", has_text="queued").wait_for()
    turn = """hidden => {
        Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(turn, True)
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(20_000)
    assert asked == []
    jobs.console.change_jobs(status="canceled", finished_at=datetime.now(UTC))
    page.evaluate(turn, False)
    page.locator("h1 .status", has_text="canceled").wait_for()
    assert len(asked) == 1


def test_the_page_of_a_job_leads_to_the_login_when_the_session_has_ended_and_says_when_the_job_is_gone(
    jobs: Running,
) -> None:
    jobs.console.create_job("wait")
    tab = jobs.tab().sign_in().go(f"{BOX}/jobs/1")
    tab.page.context.clear_cookies()
    tab.page.wait_for_url("**/login?next=*")
    tab.sign_in().go(f"{BOX}/jobs/1")
    with jobs.console.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM report_jobs"))
    tab.page.get_by_text("report_job has no job 1.").wait_for()


def test_the_page_of_an_action_says_in_its_heading_that_it_has_ended(jobs: Running) -> None:
    site, go_on = jobs.console.app.state.site, threading.Event()
    (box,) = site.office.boxes
    begun = site.errands.start(who="Zoë", action="retry", box=box, what="", run=lambda _: str(go_on.wait(60)))
    tab = jobs.tab().sign_in().go(f"/jobs/{begun.id}")
    assert tab.page.locator("h1 .status").inner_text() == "running"
    go_on.set()
    tab.page.locator("h1 .status", has_text="done").wait_for()
    assert tab.page.title() == "Retry: done · boxengine"
    assert tab.page.locator("#job[hx-get]").count() == 0
    assert tab.faults() == []


def test_a_worker_of_long_jobs_alone_is_listed_with_what_it_is_at(
    jobs: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "PAUSE", timedelta(seconds=0.05))
    monkeypatch.setattr(heartbeat, "INTERVAL", timedelta(seconds=0.05))
    page = jobs.tab().sign_in().go("/workers").page
    page.get_by_text("No worker runs.").wait_for()
    jobs.console.create_job("wait")
    with boxengine.running(jobs.console.boxes, boxes=["report_job"]):
        page.get_by_role("cell", name="1 on report_job").wait_for()
        row = page.get_by_role("row").filter(has_text=f"pid {os.getpid()}")
        assert row.get_by_role("cell").all_inner_texts()[0] == __version__
        other = jobs.tab().sign_in().go(BOX).page
        assert other.locator(".tiles div", has_text="Workers").locator("dd").inner_text() == "1"
        other.close()  # behind the second tab the first may count as hidden, and a hidden tab asks nothing
        jobs.console.change_jobs(cancel_requested=True)
    page.bring_to_front()
    page.get_by_text("No worker runs.").wait_for()


def test_jobs_are_searched_by_time_and_counted_exactly(jobs: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "COUNTED_TO", 3)
    furnish(jobs.console)
    jobs.console.change_jobs("id in (8, 9)", created_at=datetime(2026, 1, 1, 12, tzinfo=UTC))
    page = jobs.tab().sign_in().go(f"{BOX}/jobs").page
    page.get_by_text("More: task, error, time").click()
    page.get_by_label("Created since").fill("2026-01-01T11:00Z")
    page.get_by_label("before").fill("2026-01-01T13:00Z")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("status").filter(has_text="2 jobs").wait_for()
    assert page.locator("tbody td:first-child").all_inner_texts() == ["9", "8"]
    jobs.console.change_jobs("id > 6", status="failed")
    page.goto(f"{jobs.url}{BOX}/jobs?status=failed")
    page.get_by_role("status").filter(has_text="Over 3 jobs").wait_for()
    page.get_by_role("button", name="Count exactly").click()
    page.get_by_role("status").filter(has_text="Exactly 5 jobs.").wait_for()
