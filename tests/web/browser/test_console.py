"""The console in a real browser: every page and every button, in light and dark, on a phone and on a desk."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boxengine.domain.box import Box
from boxengine.ports import Counts, Engagement, WorkerInfo
from boxengine.ports.people.history import Calls, Happened
from boxengine.web.console import events, site
from tests.web.browser.conftest import DESK, PHONE, Running
from tests.web.console.conftest import OPERATE, READ

pytestmark = pytest.mark.xdist_group("browser")
ORDERS = "/boxes/order-outbox-item"
PAYLOAD = {"order": 1041, "customer": {"name": "Zoë", "email": "zoe@example.com"}, "lines": [{"sku": "A-1", "qty": 2}]}


def furnish(running: Running) -> int:
    """A box in trouble under a living worker; returns the item that holds others back."""
    console = running.console
    headers = {"traceparent": f"00-{'4bf92f3577b34da6' * 2}-{'00f067aa0ba902b7'}-01"}
    item = {"payload": json.dumps(PAYLOAD), "event_name": "order_created", "options": {"headers": headers}}
    ids = console.create("order_outbox_item", *[{**item, "event_key": str(number % 6)} for number in range(60)])
    for item_id in ids[:36]:
        console.change(item_id, status=2)
    console.fail(ids[41], "http: Timeout: shop.example did not answer within 10 s")
    console.create("combined/outbox_item", count=3, event_key="7", payload="plain text")
    names = tuple(console.boxes.resolved.pipelines)
    started = datetime.now(UTC) - timedelta(hours=5)
    worker = WorkerInfo(id="w1", host="worker-1", pid=41, boxes=names, threads=4, started_at=started)
    at_work = (Engagement(box="order_outbox_item", threads=3, since=datetime.now(UTC) - timedelta(minutes=2)),)
    worker = replace(worker, version="1.4.0", at_work=at_work)
    now = console.servers.clock.now()
    for minute in range(60):
        happened = Happened(
            delivered=900 + 40 * (minute * 37 % 11),
            failed=minute % 7,
            waits={2: 90, 4: 9, 7: 1},
            transports={"http": Calls(900, 900, minute % 7, 216.0), "kafka": Calls(3, 900, 0, 0.09)},
        )
        console.servers.history.add({"order_outbox_item": happened}, now=now - timedelta(minutes=minute))
    console.servers.workers.announce(worker, ttl=timedelta(minutes=5))
    return ids[41]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_every_page_is_free_of_faults(running: Running, scheme: str, width: int) -> None:
    stuck = furnish(running)
    tab = running.tab(width=width, scheme=scheme)
    # Of what axe looks at, only contrast depends on the scheme; all the rest is looked at once for each width.
    rules = [] if (width == DESK) == (scheme == "light") else ["color-contrast"]
    faults = {"/login": tab.go("/login").faults(rules=rules)}
    tab.sign_in()
    pages = {
        "/": "overview",
        ORDERS: "box",
        f"{ORDERS}/items": "items",
        f"{ORDERS}/items?status=failed": "failed",
        f"{ORDERS}/items/{stuck + 6}": "item",
        f"{ORDERS}/act?action=retry&status=failed": "question",
        f"{ORDERS}/polling?decide=pause": "pause",
        "/doctor": "doctor",
        "/workers": "workers",
        "/trail": "trail",
    }
    for path, name in pages.items():
        tab.go(path)
        if path == ORDERS:
            tab.page.locator("[data-summary]", has_text="delivered").wait_for()
        faults[path] = tab.faults(rules=rules)
        tab.shoot(f"console-{name}-{'phone' if width == PHONE else 'desk'}-{scheme}")
    assert {path: found for path, found in faults.items() if found} == {}


def test_a_stream_that_is_silent_for_long_goes_on(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUIET", 0.02)
    tab, streams = running.tab().sign_in(), list[str]()
    tab.go("/").page.locator("[data-live-state].on").wait_for()
    tab.page.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
    for said in ("1 item waits", "2 items wait"):
        running.console.create()
        tab.page.get_by_text(f"No worker runs, and {said}.").first.wait_for()
    assert streams == [], "it never connected again"
    assert tab.complaints == []


def test_a_tab_comes_back_after_a_proxy_that_refused_its_stream(running: Running) -> None:
    tab = running.tab().sign_in()
    tab.page.route("**/events?*", lambda route: route.fulfill(status=502), times=1)
    tab.go("/").page.get_by_text("not live").wait_for()
    tab.page.locator("[data-live-state].on").wait_for()
    running.console.create(count=2)
    tab.page.get_by_text("No worker runs, and 2 items wait.").first.wait_for()


def test_a_tab_that_was_opened_in_the_background_has_no_stream_until_somebody_looks(running: Running) -> None:
    tab, streams = running.tab().sign_in().go("/trail"), list[str]()
    tab.page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => !window.seen })")
    tab.page.on("request", lambda request: streams.append(request.url) if "/events" in request.url else None)
    tab.go("/").page.evaluate("() => fetch('/health').then((answer) => answer.json())")
    assert streams == [], "six of these would take all connections that a browser keeps to a host"
    tab.page.evaluate("() => { window.seen = true; document.dispatchEvent(new Event('visibilitychange')); }")
    tab.page.locator("[data-live-state].on").wait_for()
    assert len(streams) == 1


def test_an_open_tab_learns_that_the_database_does_not_answer_and_that_it_does_again(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, answers, take = threading.Event(), threading.Event(), running.console.servers.census.take

    def counted(box: Box) -> Counts:
        if silent.is_set():
            assert answers.wait(60)
        return take(box)

    monkeypatch.setattr(running.console.servers.census, "take", counted)
    monkeypatch.setattr(site, "SILENT", timedelta(milliseconds=50))
    monkeypatch.setattr(events, "QUIET", 0.05)
    page = running.tab().sign_in().go("/").page
    page.locator("[data-live-state].on").wait_for()
    silent.set()
    told = page.get_by_text("The database has kept the console waiting").first
    told.wait_for()
    answers.set()
    told.wait_for(state="detached")


def test_a_tab_whose_connection_has_broken_without_a_word_connects_again(running: Running) -> None:
    page = running.tab().sign_in().page
    page.clock.install()
    page.goto(running.url)
    page.locator("[data-live-state].on").wait_for()
    with page.expect_request("**/events?*"):
        page.clock.fast_forward(46_000)  # as if it had heard nothing for so long
    page.locator("[data-live-state].on").wait_for()


def test_a_live_page_leads_to_the_login_when_the_session_has_ended(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "LASTS", 0.1)  # a stream ends, and the tab asks for the next one
    tab = running.tab().sign_in().go("/boxes/order-outbox-item")
    tab.page.locator("[data-live-state].on").wait_for()
    tab.page.context.clear_cookies()
    tab.page.wait_for_url("**/login?next=*")


def test_the_overview_changes_by_itself_while_somebody_looks(running: Running) -> None:
    tab = running.tab().sign_in()
    sentence = tab.page.locator("[data-live] .sentence, [data-live] .fine").first
    assert "No worker runs" in sentence.inner_text()
    furnish(running)
    tab.page.locator(".sentence", has_text="3 items of key 5 wait for item").first.wait_for()
    assert "wait for item" in sentence.inner_text()
    assert tab.page.locator("[data-live-state]").inner_text() == "live"


def test_an_item_is_retried_and_a_box_paused_and_resumed_with_the_keyboard_alone(running: Running) -> None:
    stuck = furnish(running)
    tab = running.tab().sign_in()
    page = tab.page

    def press(name: str | re.Pattern[str]) -> None:
        target = page.get_by_role("link", name=name).or_(page.get_by_role("button", name=name)).first
        for _ in range(80):
            page.keyboard.press("Tab")
            if target.evaluate("element => element === document.activeElement"):
                page.keyboard.press("Enter")
                page.wait_for_load_state()
                return
        pytest.fail(f"the Tab key does not lead to {name}")

    press(f"Item {stuck} of order_outbox_item")
    page.wait_for_url(f"**/items/{stuck}")
    press("Retry…")
    page.wait_for_url("**/act?*")
    press("Retry 1 item")
    page.wait_for_url("**/jobs/*")
    assert page.locator(".outcome").inner_text() == "1 item retried."
    assert running.console.statuses()[stuck] == 0
    box = running.console.boxes.box("order_outbox_item")
    for button, confirm, enabled in (("Pause", "Pause it", False), ("Resume", "Resume it", True)):
        tab.go(ORDERS)
        press(button)
        page.wait_for_url("**/polling?*")
        press(confirm)
        page.wait_for_url(f"**{ORDERS}")
        assert running.console.servers.pauses.polling_enabled([box]) == {box.name: enabled}


def test_items_are_searched_and_paged_and_acted_on_together(running: Running) -> None:
    furnish(running)
    running.console.create(count=120, event_key="many")
    tab = running.tab().sign_in().go(f"{ORDERS}/items")
    page = tab.page
    page.get_by_label("Key, id or uuid").fill("many")
    page.get_by_label("Status").select_option("pending")
    page.get_by_role("button", name="Search").click()
    assert page.locator(".found").inner_text() == "120 items"
    seen = []
    for _ in range(3):
        seen += page.locator("tbody td:first-child").all_inner_texts()
        if page.get_by_role("link", name="Older").count():
            page.get_by_role("link", name="Older").click()
            page.wait_for_load_state()
    assert len(set(seen)) == 120
    page.get_by_role("link", name="Newer").click()
    page.wait_for_load_state()
    assert page.locator("tbody td:first-child").all_inner_texts() == seen[50:100]
    page.get_by_role("link", name="Newest").click()
    page.get_by_role("button", name="Discard all").click()
    page.get_by_role("button", name="Discard 120 items").click()
    page.wait_for_url("**/jobs/*")
    assert "120 items discarded" in page.locator(".outcome").inner_text()


def test_a_replay_goes_where_the_form_says(running: Running) -> None:
    console = running.console
    (done,) = console.create(event_key="a", event_name="paid", options={"copy": "first"})
    console.change(done, status=2)
    (uuid,) = [row.uuid for row in [console.servers.items.get(console.boxes.box("order_outbox_item"), done)] if row]
    tab = running.tab(width=PHONE).sign_in()
    page = tab.page

    def ask() -> None:
        tab.go(f"{ORDERS}/items/{done}")
        page.get_by_role("button", name="Replay").click()
        page.wait_for_url("**/act?*")

    def options() -> dict[str, Any]:
        copy = max(console.statuses())
        return dict(console.client().get(f"/api{ORDERS}/items/{copy}").json)

    ask()
    page.locator("select[name=transport]").select_option("log")
    page.get_by_label("With another event name").fill("paid_again")
    page.get_by_label(re.compile("With an option")).fill("copy=again")
    page.get_by_label(re.compile("Keep the Idempotency-Key")).check()
    assert tab.faults() == []
    page.get_by_role("button", name="Replay 1 item").click()
    page.locator(".outcome", has_text="1 item replayed").wait_for()
    copy = options()
    assert (copy["event_name"], copy["event_key"], copy["status"]) == ("paid_again", "a", "pending")
    assert (copy["options"]["copy"], copy["options"]["replay_to"]) == ("again", "log")
    assert copy["options"]["headers"] == {"Replay-Of": uuid, "Idempotency-Key": uuid}

    ask()
    page.get_by_label("With another event name").fill("paid_again")
    page.get_by_label(re.compile("Overtake")).check()
    page.get_by_role("button", name="Replay 1 item").click()
    assert "keeps its event name" in page.locator("main").inner_text()
    assert console.statuses()[done] == 2

    ask()
    page.get_by_label(re.compile("Overtake")).check()
    page.get_by_role("button", name="Replay 1 item").click()
    page.locator(".outcome", has_text="1 item replayed").wait_for()
    assert console.statuses()[done] == 0, "the item itself goes out again"


def test_charts_are_drawn_for_the_hour_and_the_day(running: Running) -> None:
    furnish(running)
    page = running.tab().sign_in().go(ORDERS).page
    page.locator("[data-summary]", has_text="In the last hour:").wait_for()
    assert page.locator(".charts canvas").count() == 3
    page.get_by_role("button", name="Day").click()
    page.locator("[data-summary]", has_text="In the last day:").wait_for()
    assert page.get_by_role("button", name="Day").get_attribute("aria-pressed") == "true"


def test_an_answer_for_the_span_chosen_before_is_not_drawn(running: Running) -> None:
    page, held = running.tab().sign_in().page, list[Any]()
    page.route("**/history?span=hour", lambda route: held.append(route))  # noqa: PLW0108 - Playwright takes no builtin
    page.goto(running.url + ORDERS)
    summary = page.locator("[data-summary]")
    page.get_by_role("button", name="Day").click()
    page.locator("[data-summary]", has_text="In the last day: 0 delivered").wait_for()
    columns = (
        "delivered_per_second",
        "failed_per_second",
        "wait_p50_seconds",
        "wait_p99_seconds",
        "oldest_wait_seconds",
    )
    late = {"step_seconds": 1, "at": [1, 2], "transports": [], **{name: [500, 500] for name in columns}}
    with page.expect_response("**/history?span=hour"):
        held[0].fulfill(json=late)
    page.evaluate("() => fetch('/health').then((answer) => answer.json())")
    assert summary.inner_text().startswith("In the last day: 0 delivered")


def test_the_button_that_resumes_a_box_appears_when_somebody_else_pauses_it(running: Running) -> None:
    box = running.console.boxes.box("order_outbox_item")
    operator, reader = (running.tab().sign_in(token).go(ORDERS).page for token in (OPERATE, READ))
    operator.get_by_role("link", name="Pause").wait_for()
    running.console.servers.pauses.set(box, polling_enabled=False)
    for page in (operator, reader):
        page.locator(".sentence", has_text="order_outbox_item is paused").wait_for()
    operator.get_by_role("link", name="Resume").wait_for()
    assert operator.get_by_role("link", name="Pause").count() == 0
    assert reader.get_by_role("link", name="Resume").count() == 0, "who may only look has no button"


def test_moments_are_in_the_readers_zone(running: Running) -> None:
    (item_id,) = running.console.create()
    running.console.change(item_id, created_at=datetime(2026, 1, 31, 20, 0, tzinfo=UTC))
    tab = running.tab(timezone_id="Asia/Kolkata").sign_in().go(f"{ORDERS}/items/{item_id}")
    moment = tab.page.locator("time[datetime^='2026-01-31T20:00']").first
    assert "1 Feb 2026, 01:30:00" in moment.inner_text()
    assert moment.get_attribute("title") == "2026-01-31T20:00:00.000000Z"


def test_a_search_by_time_is_in_the_readers_zone_and_says_so(running: Running) -> None:
    ids = running.console.create(count=3)
    for item_id, hour in zip(ids, (19, 20, 21), strict=True):
        running.console.change(item_id, created_at=datetime(2026, 1, 31, hour, 0, tzinfo=UTC))
    tab = running.tab(timezone_id="Asia/Kolkata").sign_in().go(f"{ORDERS}/items")
    page = tab.page

    def search(since: str, before: str) -> list[str]:
        if not page.get_by_label("Created since").is_visible():
            page.get_by_text("More: error, event, time").click()
        page.get_by_label("Created since").fill(since)
        page.get_by_label("before").fill(before)
        page.get_by_role("button", name="Search").click()
        page.wait_for_load_state()
        return list(page.locator("tbody td:first-child").all_inner_texts())

    assert search("2026-02-01 01:30", "2026-02-01T02:00") == [str(ids[1])]
    assert page.get_by_label("Created since").input_value() == "2026-02-01T01:30+05:30"
    assert page.locator("[data-zone]").all_inner_texts() == ["in your zone"] * 2
    assert search("2026-02-01", "2026-02-01 02") == [str(ids[1]), str(ids[0])]
    assert search("2026-01-31T20:30Z", "PT1M") == [str(ids[2])]
    plain = running.tab(java_script_enabled=False).sign_in().go(f"{ORDERS}/items").page
    assert plain.locator("[data-zone]").all_text_contents() == ["in UTC"] * 2


def test_what_stands_in_an_item_runs_nowhere(running: Running) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    item = {"event_key": evil, "event_name": evil, "payload": evil, "options": {"headers": {evil: evil}}}
    (item_id, _) = running.console.create("order_outbox_item", item, item)
    running.console.fail(item_id, evil)
    tab = running.tab().sign_in(name=evil)
    for path in ("/", ORDERS, f"{ORDERS}/items", f"{ORDERS}/items/{item_id}", "/trail"):
        tab.go(path)
        tab.page.wait_for_timeout(50)
        assert "owned" not in tab.page.title()
    assert tab.complaints == []


def test_a_foreign_page_can_neither_frame_it_nor_press_its_buttons(running: Running) -> None:
    tab = running.tab().sign_in()
    page, box = tab.page, running.console.boxes.box("order_outbox_item")
    form = f"<form method=post action='{running.url}{ORDERS}/polling'><input name=decide value=pause></form>"
    foreign = f"<iframe src='{running.url}/'></iframe>{form}"
    page.route("http://evil.localhost/**", lambda route: route.fulfill(body=foreign, content_type="text/html"))
    page.goto("http://evil.localhost/")
    page.wait_for_timeout(300)
    framed = [frame for frame in page.frames if frame != page.main_frame]
    assert all("boxengine" not in frame.content() for frame in framed)
    page.evaluate("document.forms[0].submit()")
    page.wait_for_url("**/login**")  # the cookie did not come along
    assert running.console.servers.pauses.polling_enabled([box]) == {}
