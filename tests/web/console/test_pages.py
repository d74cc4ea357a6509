"""The console's pages and its JSON, over real servers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.history import RedisHistory
from boxengine.adapters.sql.log.moving import Mover
from boxengine.app.overview import looking, sparing
from boxengine.domain.box import Box
from boxengine.embedded import EmbeddedValkey
from boxengine.errors import QueueUnavailable, StoreConflict, StoreTooSlow, StoreUnavailable
from boxengine.ports import Counts, Engagement, WorkerInfo
from boxengine.ports.people.attempts import Attempt
from boxengine.ports.people.history import Calls, Happened, Span
from boxengine.web.console import site
from tests.cli.project import Project
from tests.eventually import eventually
from tests.web.console.conftest import CONFIGURATION, JOBS, Console

ORDERS = "/boxes/order-outbox-item"
PENDING, FAILED, DELIVERED, DISCARDED = range(4)


def test_every_page_answers_where_there_is_nothing_yet(each_console: Console) -> None:
    browser = each_console.browser()
    for path in ("/", ORDERS, f"{ORDERS}/items", "/boxes/combined-outbox-item", "/workers", "/trail"):
        assert browser.get(path).status == 200, path


def test_a_redis_that_takes_no_writes_is_named_by_the_next_look_however_sparing_it_is(
    make_console: Callable[..., Console], postgres_url: str, own_redis: EmbeddedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparing, "SHARE", 1e-9)  # what is asked sparingly is asked once a minute
    console = make_console(postgres_url, CONFIGURATION.replace("{redis}", own_redis.url()))
    live = console.app.state.site.live
    assert not [each for each in live.now().problems if each.kind == "redis"]
    with connect(own_redis.url()) as client:
        client.config_set("maxmemory", "1")
        (told,) = [each for each in live.now(fresh=True).problems if each.kind == "redis"]
        assert told.sentence.startswith("Redis takes no jobs, so nothing is delivered: the server takes no writes: ")
        assert "Redis takes no jobs, so nothing is delivered" in console.browser().get("/").text
        client.config_set("maxmemory", "0")
    assert not [each for each in live.now(fresh=True).problems if each.kind == "redis"]


def test_boxes_whose_names_differ_in_a_slash_alone_have_pages_of_their_own(
    make_console: Callable[..., Console], postgres_url: str
) -> None:
    twin = "  combined_outbox_item: {{table: twins, max_retries: 3, transports: {{log: {{}}}}}}\ninbox_items:"
    console = make_console(postgres_url, CONFIGURATION.replace("inbox_items:", twin))
    first = console.create("combined/outbox_item", count=2)
    console.create("combined_outbox_item", count=5)
    console.fail(first[0], box="combined/outbox_item")
    browser = console.browser()
    listed = {box["name"]: box for box in console.client().get("/api/boxes").json}
    ids = {name: box["id"] for name, box in listed.items()}
    assert ids["combined/outbox_item"] == "combined-outbox_item"
    assert ids["combined_outbox_item"] == "combined_outbox_item"
    assert ids["order_outbox_item"] == "order-outbox-item", "others keep theirs"
    assert len(set(ids.values())) == len(ids)
    assert listed["combined_outbox_item"]["counts"]["pending"]["number"] == 5
    for name, own in ids.items():
        assert f'href="/boxes/{own}"' in browser.get("/").text
        assert f"<h1>{name}" in browser.get(f"/boxes/{own}").text
    assert f'href="/boxes/combined-outbox_item/items/{first[0]}"' in browser.get("/").text


def test_the_overview_says_first_what_is_wrong(each_console: Console) -> None:
    first, *_ = each_console.create(count=3, event_key="17")
    each_console.fail(first)
    look = each_console.client().get("/api/overview").json
    sentences = [problem["sentence"] for problem in look["problems"]]
    assert sentences == [
        "No worker runs, and 2 items wait.",
        f"2 items of key 17 wait for item {first}, which failed 4 times: Timeout: no answer",
    ]
    page = each_console.browser().get("/").text
    assert page.index(sentences[1]) < page.index("<table")


def test_a_box_shows_its_counts_its_policy_and_its_configuration(each_console: Console) -> None:
    ids = each_console.create(count=5)
    each_console.change(ids[0], status=DELIVERED)
    shown = each_console.client().get("/api/boxes/order-outbox-item").json
    assert {name: count["number"] for name, count in shown["counts"].items()} == {
        "pending": 4,
        "retrying": 0,
        "failed": 0,
        "delivered": 1,
        "discarded": 0,
    }
    page = each_console.browser().get(ORDERS).text
    assert "a failed item holds back its key" in page
    assert "outbox_items.order_outbox_item.max_retries" in page


def test_a_box_shows_its_own_configuration_and_not_that_of_one_whose_name_begins_alike(
    make_console: Callable[..., Console], postgres_url: str
) -> None:
    archive = "  order_outbox_item_archive: {{transports: {{log: {{}}}}}}\ninbox_items:"
    page = make_console(postgres_url, CONFIGURATION.replace("inbox_items:", archive)).browser().get(ORDERS).text
    assert "outbox_items.order_outbox_item.max_retries" in page
    assert "order_outbox_item_archive" not in page


def test_an_item_is_shown_whole_and_why_it_waits(each_console: Console) -> None:
    headers = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    item = {"event_key": "17", "payload": json.dumps({"a": [1, {"b": "ü"}]}), "options": {"headers": headers}}
    first, second = each_console.create("order_outbox_item", item, item)
    each_console.fail(first)
    shown = each_console.client().get(f"/api/boxes/order-outbox-item/items/{second}").json
    assert json.loads(shown["payload"]["text"]) == {"a": [1, {"b": "ü"}]}
    assert shown["trace_id"] == "ab" * 16
    assert shown["held_by"] == first
    assert f"It waits for item {first} of the same key, which failed 4 times: Timeout: no answer" in shown["why"]
    page = each_console.browser().get(f"{ORDERS}/items/{second}").text
    assert "Why it waits" in page
    assert f'href="{ORDERS}/items/{first}"' in page


def test_what_takes_the_database_too_long_to_tell_of_an_item_hides_nothing_else_of_it(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    item, other = console.create(count=2)
    for each in (item, other):
        console.fail(each, "http: Timeout: shop.example did not answer")

    def too_slow(*_: Any, **__: Any) -> Any:
        raise StoreTooSlow("the database: canceling statement due to statement timeout")

    for question in ("followers", "neighbours", "count"):
        monkeypatch.setattr(console.servers.inspector, question, too_slow)
    browser = console.browser()
    for path in (f"{ORDERS}/items/{item}", f"{ORDERS}/items?status=failed&limit=1"):
        shown = browser.get(path)
        assert (shown.status, "shop.example did not answer" in shown.text) == (200, True), path
    assert "did not tell in time" in browser.get(f"{ORDERS}/items/{item}").text


def test_payloads_are_json_text_or_hex(console: Console) -> None:
    payloads = {b'{"a": 1}': "json", "grüße".encode(): "text", b"\x00\xff\x10abc": "hex"}
    shown = {}
    for payload in payloads:
        (item_id,) = console.create("combined/outbox_item", payload=payload)
        shown[payload] = console.client().get(f"/api/boxes/combined-outbox-item/items/{item_id}").json["payload"]
    assert {payload: each["kind"] for payload, each in shown.items()} == payloads
    assert shown[b"\x00\xff\x10abc"]["text"].startswith("00000000  00 ff 10 61 62 63")


def test_an_item_that_is_not_there_and_a_box_that_nobody_has_are_404_with_a_sentence(console: Console) -> None:
    client = console.client()
    missing = client.get("/api/boxes/order-outbox-item/items/41")
    assert (missing.status, missing.json) == (404, {"error": "order_outbox_item has no item 41."})
    unknown = client.get("/api/boxes/nobody")
    assert unknown.status == 404
    assert "order-outbox-item" in unknown.json["error"]
    assert console.browser().get(f"{ORDERS}/items/41").status == 404


def test_retry_discard_and_delete_change_the_row_after_a_question_with_a_count(each_console: Console) -> None:
    browser = each_console.browser()
    wanted = {"retry": PENDING, "discard": DISCARDED, "delete": None}
    for action, status in wanted.items():
        (item_id,) = each_console.create()
        each_console.fail(item_id)
        question = browser.get(f"{ORDERS}/act?action={action}&id={item_id}")
        assert f"{action.capitalize()} 1 item?" in question.text
        assert each_console.statuses()[item_id] == FAILED, "a question changes nothing"
        done = browser.press(f"{ORDERS}/act?action={action}&id={item_id}", f"{ORDERS}/act", action=action, id=item_id)
        assert done.status == 303
        assert "done" in browser.get(done.headers["location"]).text
        assert each_console.statuses().get(item_id) == status


def test_the_same_through_the_api(each_console: Console) -> None:
    client = each_console.client()
    (item_id,) = each_console.create()
    each_console.fail(item_id)
    done = client.post(f"/api/boxes/order-outbox-item/items/{item_id}/retry", {})
    assert (done.status, done.json["state"], done.json["outcome"]) == (200, "done", "1 item retried")
    assert each_console.statuses()[item_id] == PENDING


def test_a_pending_item_is_deleted_where_it_is_named(console: Console) -> None:
    (item_id,) = console.create()
    console.client().post(f"/api/boxes/order-outbox-item/items/{item_id}/delete", {})
    assert console.statuses() == {}


def test_an_old_page_does_not_act_on_an_item_whose_status_has_changed(console: Console) -> None:
    (item,) = console.create()
    console.fail(item)
    browser = console.browser()
    assert browser.get(f"{ORDERS}/items/{item}").hidden["status"] == "failed"
    question = browser.get(f"{ORDERS}/act?action=retry&id={item}&status=failed")
    console.change(item, status=DISCARDED)
    browser.post(f"{ORDERS}/act", question.hidden, form=True)
    assert console.statuses() == {item: DISCARDED}


def test_an_action_on_a_period_before_now_takes_what_was_asked_about_however_late_it_is_confirmed(
    console: Console,
) -> None:
    (asked_about,) = console.create()
    console.fail(asked_about)
    browser = console.browser()
    question = browser.get(f"{ORDERS}/act?action=retry&status=failed&to=PT0S")
    assert "Retry 1 item?" in question.text
    (later,) = console.create()
    console.fail(later)
    browser.post(f"{ORDERS}/act", question.hidden, form=True)
    assert console.statuses() == {asked_about: PENDING, later: FAILED}


@pytest.mark.parametrize(
    ("action", "status"), [("retry", FAILED), ("discard", FAILED), ("delete", FAILED), ("replay", DELIVERED)]
)
def test_an_action_takes_no_more_items_than_its_question_has_counted(
    each_console: Console, action: str, status: int
) -> None:
    asked_about, later = each_console.create(count=2)
    each_console.change(asked_about, status=status)
    browser = each_console.browser()
    question = browser.get(f"{ORDERS}/act?action={action}&status={('', 'failed', 'delivered')[status]}&from=PT1H")
    assert f"{action.capitalize()} 1 item?" in question.text
    each_console.change(later, status=status)
    done = browser.post(f"{ORDERS}/act", question.hidden, form=True)
    assert "1 item " in browser.get(done.headers["location"]).text
    assert each_console.statuses()[later] == status
    expected = {"retry": PENDING, "discard": DISCARDED, "delete": None, "replay": DELIVERED}
    assert each_console.statuses().get(asked_about) == expected[action]


def test_actions_by_filter_count_first_and_take_only_what_is_meant(each_console: Console) -> None:
    ids = each_console.create(count=4, event_key="a")
    (other,) = each_console.create(event_key="b")
    for item_id in (*ids, other):
        each_console.fail(item_id)
    client, path = each_console.client(), "/api/boxes/order-outbox-item/actions"
    wish = {"action": "discard", "filter": {"status": "failed", "key": "a"}}
    dry = client.post(path, {**wish, "dry_run": True}).json
    assert dry["items"] == {"number": 4, "precision": "exact"}
    assert set(each_console.statuses().values()) == {FAILED}
    assert client.post(path, wish).json["outcome"] == "4 items discarded"
    assert each_console.statuses() == {**dict.fromkeys(ids, DISCARDED), other: FAILED}


@pytest.mark.parametrize("nothing", [{"id": []}, {"id": [" "]}, {"status": []}, {"id": ","}], ids=str)
def test_an_empty_list_of_what_is_meant_does_not_mean_everything(console: Console, nothing: dict[str, Any]) -> None:
    (item_id,) = console.create()
    console.fail(item_id)
    wish = {"action": "delete", "filter": nothing}
    refused = console.client().post("/api/boxes/order-outbox-item/actions", wish)
    assert (refused.status, "names nothing" in refused.json["error"]) == (400, True)
    assert console.statuses() == {item_id: FAILED}


def test_delivered_items_are_replayed_by_page_and_by_api(each_console: Console) -> None:
    (item_id,) = each_console.create(event_key="a")
    each_console.change(item_id, status=DELIVERED)
    browser = each_console.browser()
    question = f"{ORDERS}/act?action=replay&id={item_id}"
    assert "Replay 1 item?" in browser.get(question).text
    browser.press(question, f"{ORDERS}/act", action="replay", id=item_id)
    wish = {"action": "replay", "filter": {"key": "a"}}
    path = "/api/boxes/order-outbox-item/actions"
    assert each_console.client().post(path, {**wish, "dry_run": True}).json["items"]["number"] == 1
    assert each_console.client().post(path, wish).json["outcome"] == "1 item replayed"
    assert sorted(each_console.statuses().values()) == [PENDING, PENDING, DELIVERED]
    refused = each_console.client().post(path, {"action": "replay"})
    assert (refused.status, "too much" in refused.json["error"]) == (409, True)


def test_a_form_that_is_sent_twice_as_by_a_double_click_replays_once(console: Console) -> None:
    (done,) = console.create()
    console.change(done, status=DELIVERED)
    browser, asked = console.browser(), f"{ORDERS}/act?action=replay&id={done}"
    form = browser.get(asked).hidden
    first, second = (browser.post(f"{ORDERS}/act", form, form=True).headers["location"] for _ in range(2))
    assert first == second
    assert sorted(console.statuses().values()) == [PENDING, DELIVERED]
    browser.post(f"{ORDERS}/act", browser.get(asked).hidden, form=True)
    assert sorted(console.statuses().values()) == [PENDING, PENDING, DELIVERED], "asked again, it is done again"


def test_a_replay_goes_to_one_transport_or_overtakes_as_it_is_asked_for(each_console: Console) -> None:
    (done,) = each_console.create(event_key="a")
    each_console.change(done, status=DELIVERED)
    client, path = each_console.client(), "/api/boxes/order-outbox-item"
    answer = client.post(
        f"{path}/items/{done}/replay", {"replay": {"transport": "log", "options": {"copy": "again", "api_key": "x"}}}
    )
    assert answer.json["what"] == f"item {done}, to log alone, with copy=again, with api_key=***"
    copy = max(each_console.statuses())
    shown = client.get(f"{path}/items/{copy}").json
    assert (shown["options"]["replay_to"], shown["options"]["copy"]) == ("log", "again")
    wish = {"action": "replay", "filter": {"key": "a"}, "replay": {"overtake": True, "same_key": True}}
    assert client.post(f"{path}/actions", wish).json["outcome"] == "1 item replayed"
    assert each_console.statuses() == {done: PENDING, copy: PENDING}


def test_an_item_in_the_log_alone_is_shown_where_it_stands_and_cannot_be_acted_on(
    make_console: Callable[..., Console], postgres_url: str
) -> None:
    logged = CONFIGURATION.replace("inbox_items:", "  sale_outbox_item:\n    storage: log\ninbox_items:")
    console = make_console(postgres_url, logged)
    (item,) = console.create("sale_outbox_item", {"event_key": "17", "payload": "x"})
    client, path = console.client(), f"/api/boxes/sale-outbox-item/items/{item}"
    box = console.boxes.box("sale_outbox_item")
    for skipped, status in ((False, "pending"), (True, "passed")):
        if skipped:
            Mover(console.engine, box).ahead(None)
        shown = client.get(path).json
        assert (shown["status"], shown["in_log"]) == (status, True)
        searched = console.browser().get(f"/boxes/sale-outbox-item/items?by=id&q={item}")
        assert (searched.status, searched.headers.get("location")) == (303, f"/boxes/sale-outbox-item/items/{item}")
        assert "No such items" in console.browser().get("/boxes/sale-outbox-item/items?by=id&q=99").text
        page = console.browser().get(f"/boxes/sale-outbox-item/items/{item}").text
        assert f'<span class="status {status}">{status}</span>' in page
        for action in ("retry", "discard", "delete"):
            answer = client.post(f"{path}/{action}", {})
            expected = f"Item {item} of sale_outbox_item stands in the log, where nobody can {action} single items."
            assert (answer.status, answer.json) == (409, {"error": expected})
    assert "A log keeps no outcome of single items" in " ".join(client.get(path).json["why"])
    assert client.post(f"/api/boxes/sale-outbox-item/items/{item + 1}/retry", {}).status == 404


def test_a_replay_that_cannot_be_meant_gets_a_sentence_and_does_nothing(console: Console) -> None:
    (done,) = console.create(event_key="a")
    console.change(done, status=DELIVERED)
    client, path = console.client(), f"/api/boxes/order-outbox-item/items/{done}"
    for sent, expected in (
        ({"transport": "ftp"}, "no transport 'ftp'; it has log"),
        ({"overtake": True, "event_name": "x"}, "the item itself"),
        ({"options": {"headers": "x"}}, "cannot set the option headers"),
        ({"options": [1]}, "options: expected an object"),
        ({"colour": "red"}, "'colour' is not known"),
        ([], "replay: expected an object"),
    ):
        answer = client.post(f"{path}/replay", {"replay": sent})
        assert (answer.status, expected in answer.json["error"]) == (400, True), answer.json
    assert client.post(f"{path}/discard", {"replay": {}}).status == 400
    browser = console.browser()
    asked = f"{ORDERS}/act?action=replay&id={done}"
    assert browser.press(asked, f"{ORDERS}/act", action="replay", id=done, option="no sign").status == 400
    assert console.statuses() == {done: DELIVERED}


def test_an_item_shows_the_attempts_that_failed_and_a_box_its_slowest_transports(
    console: Console,
) -> None:
    (item_id,) = console.create("payment_inbox_item")
    row = console.servers.items.get(console.boxes.box("payment_inbox_item"), item_id)
    assert row is not None
    now = console.servers.clock.now()
    attempts = [
        Attempt(item_id=item_id, uuid=row.uuid, at=now, number=number, reason=f"http: https://me:s3cret@x/ {number}")
        for number in (1, 2)
    ]
    console.servers.attempts.add({"payment_inbox_item": attempts})
    shown = console.client().get(f"/api/boxes/payment-inbox-item/items/{item_id}").json["attempts"]
    assert [(each["number"], each["reason"]) for each in shown] == [
        (1, "http: https://me:***@x/ 1"),
        (2, "http: https://me:***@x/ 2"),
    ]
    page = console.browser().get(f"/boxes/payment-inbox-item/items/{item_id}").text
    assert page.index("https://me:***@x/ 2") < page.index("https://me:***@x/ 1")
    transports = {"quick": Calls(10, 1000, 0, 0.1), "slow": Calls(10, 10, 3, 20.0)}
    console.servers.history.add({"payment_inbox_item": Happened(10, 3, transports=transports)}, now=now)
    found = console.client().get("/api/boxes/payment-inbox-item/history").json["transports"]
    assert [(each["transport"], each["seconds_per_call"], each["failed"]) for each in found] == [
        ("slow", 2.0, 3),
        ("quick", 0.01, 0),
    ]
    page = console.browser().get("/boxes/payment-inbox-item").text
    assert page.index(">slow<") < page.index(">quick<")


def test_workers_tell_their_version_and_what_their_threads_are_at(console: Console) -> None:
    now = console.servers.clock.now()
    at_work = (Engagement(box="order_outbox_item", threads=3, since=now - timedelta(minutes=5)),)
    worker = WorkerInfo(
        id="w1", host="worker-1", pid=41, boxes=("order_outbox_item",), threads=4, started_at=now, version="1.4.0"
    )
    console.servers.workers.announce(replace(worker, at_work=at_work), ttl=timedelta(minutes=1))
    (shown,) = console.client().get("/api/workers").json
    assert (shown["version"], shown["at_work"][0]["threads"]) == ("1.4.0", 3)
    for path in ("/", "/workers"):
        page = console.browser().get(path).text
        assert "3 on order_outbox_item" in page
        assert "for 5 min" in page


def test_who_did_what_to_which_items_is_in_the_trail(console: Console) -> None:
    (item_id,) = console.create()
    console.fail(item_id)
    browser = console.browser()
    browser.press(f"{ORDERS}/act?action=retry&id={item_id}", f"{ORDERS}/act", action="retry", id=item_id)
    deeds = console.client().get("/api/trail").json
    assert [(deed["who"], deed["action"], deed["what"], deed["outcome"]) for deed in deeds] == [
        ("Zoë", "retry", f"item {item_id}", "1 item retried"),
        ("Zoë", "retry", f"item {item_id}", "begun"),
    ]
    assert "1 item retried" in browser.get("/trail").text


def test_what_somebody_did_shows_at_once_though_its_questions_are_asked_seldom(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sparing, "SHARE", 1e-9)
    (failed,) = console.create()
    console.fail(failed)
    client = console.client()

    def pending() -> int:
        console.app.state.site.live.now(fresh=True)
        counts = client.get("/api/boxes/order-outbox-item").json["counts"]
        return int(counts["pending"]["number"])

    for _ in range(3):  # until its cost is known
        assert pending() == 0
    assert client.post(f"/api/boxes/order-outbox-item/items/{failed}/retry", {}).status == 200
    assert pending() == 1
    console.create()
    assert pending() == 1, "nobody has told the console"


@pytest.mark.parametrize("error", [StoreTooSlow("the database: too long"), StoreConflict("the database: locked")])
def test_a_table_that_does_not_answer_is_no_outage_of_the_database(
    console: Console, monkeypatch: pytest.MonkeyPatch, error: StoreUnavailable
) -> None:
    take = console.servers.census.take

    def counted(box: Box) -> Counts:
        if box.name == "order_outbox_item":
            raise error
        return take(box)

    monkeypatch.setattr(console.servers.census, "take", counted)
    overview = console.client().get("/api/overview").json
    assert overview["outages"] == []
    assert [each["sentence"] for each in overview["problems"] if each["kind"] == "unread"] == [
        f"The numbers of order_outbox_item are incomplete: {error}."
    ]
    assert [box["name"] for box in overview["boxes"] if box["counts"] is None] == ["order_outbox_item"]


def test_a_table_that_the_account_may_not_read_is_no_outage_of_the_database(
    make_console: Callable[..., Console], postgres_url: str
) -> None:
    console = make_console(postgres_url, JOBS)
    engine, role = console.servers.store.engine, f"looks_{console.engine.url.database}"
    denied = ("order_outbox_items", "report_jobs", "report_jobs_events")

    def step_down(connection: Any, _record: Any) -> None:
        connection.execute(f"SET ROLE {role}")
        connection.commit()

    with console.engine.begin() as owner:
        owner.exec_driver_sql(f"CREATE ROLE {role}")
        owner.exec_driver_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}")
        owner.exec_driver_sql(f"REVOKE SELECT ON {', '.join(denied)} FROM {role}")
    sa.event.listen(engine, "connect", step_down)
    try:
        overview = console.client().get("/api/overview").json
        assert overview["outages"] == []
        sentences = {each["box"]: each["sentence"] for each in overview["problems"] if each["kind"] == "unread"}
        assert list(sentences) == ["order_outbox_item", "report_job"]
        assert "are incomplete: the database: permission denied for table " in sentences["order_outbox_item"]
        assert [box["name"] for box in overview["boxes"] if box["counts"] is None] == ["order_outbox_item"]
        examined = console.client().get("/api/doctor").json
        assert any(
            f"GRANT SELECT, UPDATE, DELETE ON public.{denied[0]}" in each["advice"]
            for each in examined
            if each["advice"]
        )
    finally:
        engine.dispose()
        with console.engine.begin() as owner:
            owner.exec_driver_sql(f"DROP OWNED BY {role}")
            owner.exec_driver_sql(f"DROP ROLE {role}")


def test_a_column_that_somebody_drops_under_the_console_is_no_outage_from_then_on(each_console: Console) -> None:
    console, client = each_console, each_console.client()
    (item,) = console.create(event_name="paid")
    path = f"/api/boxes/order-outbox-item/items/{item}"
    assert client.get(path).json["event_name"] == "paid"
    with console.engine.begin() as owner:
        owner.execute(sa.text("ALTER TABLE order_outbox_items DROP COLUMN event_name"))
    console.app.state.site.live.now(fresh=True)
    assert client.get(path).json["event_name"] is None
    assert client.get("/api/overview").json["outages"] == []
    with console.engine.begin() as owner:
        owner.execute(sa.text("ALTER TABLE order_outbox_items ADD COLUMN event_name varchar(255) DEFAULT 'added'"))
    console.app.state.site.live.now(fresh=True)
    assert client.get(path).json["event_name"] == "added"


@pytest.mark.parametrize("server", ["database", "Redis"])
def test_a_boxes_page_does_not_say_that_all_is_well_while_a_server_is_down(
    job_console: Console, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    console, now = job_console, job_console.servers.clock.now()
    worker = WorkerInfo(id="w", host="h", pid=1, boxes=("order_outbox_item",), threads=1, started_at=now)
    console.servers.workers.announce(worker, ttl=timedelta(minutes=1))
    browser, pages = console.browser(), (ORDERS, "/boxes/report-job")
    assert ["All is well" in browser.get(path).text for path in pages] == [True, True]

    def gone(*_: Any, **__: Any) -> Any:
        raise QueueUnavailable("Redis: gone") if server == "Redis" else StoreUnavailable("the database: gone")

    for asked in (console.servers.workers, console.servers.pauses, console.servers.queue):
        for question in ("living", "polling_enabled", "state"):
            if server == "Redis" and hasattr(asked, question):
                monkeypatch.setattr(asked, question, gone)
    if server == "database":
        monkeypatch.setattr(console.servers.census, "take", gone)
        monkeypatch.setattr(console.app.state.site.office.inspector, "counts", gone)
    console.app.state.site.live.now(fresh=True)
    assert ["All is well" in browser.get(path).text for path in pages] == [False, server == "Redis"]
    assert f"{server} does not answer, so nothing is delivered: gone." in browser.get(ORDERS).text


def test_a_database_that_takes_a_question_and_does_not_answer_is_told_of(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, asked, answers = threading.Event(), threading.Event(), threading.Event()
    take = console.servers.census.take

    def counted(box: Box) -> Counts:
        if silent.is_set():
            asked.set()
            assert answers.wait(60)
        return take(box)

    monkeypatch.setattr(console.servers.census, "take", counted)
    monkeypatch.setattr(site, "SILENT", timedelta(microseconds=1))
    browser, client, told = console.browser(), console.client(), "The database has kept the console waiting for "
    assert [told in browser.get(path).text for path in ("/", ORDERS)] == [False, False]
    silent.set()
    look = threading.Thread(target=console.app.state.site.live.now, kwargs={"fresh": True})
    look.start()
    assert asked.wait(60)
    assert [told in browser.get(path).text for path in ("/", ORDERS)] == [True, True]
    worst = client.get("/api/overview").json["problems"][0]
    assert (worst["kind"], worst["severity"]) == ("database", "stopped")
    answers.set()
    look.join(60)
    assert [told in browser.get(path).text for path in ("/", ORDERS)] == [False, False]


def test_figures_that_are_not_of_now_carry_their_time(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = console.browser()
    assert "from the table" not in browser.get("/").text
    assert "from the table" not in browser.get(ORDERS).text
    monkeypatch.setattr(looking, "SHOWN_FROM", timedelta(0))
    console.app.state.site.live.now(fresh=True)
    assert "The figures from the table of order_outbox_item are of" in browser.get("/").text
    assert "the figures from the table are of" in browser.get(ORDERS).text
    assert console.client().get("/api/boxes/order-outbox-item").json["counted_at"]


def test_a_search_says_how_far_back_it_came(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = console.create(count=700, payload=b"")
    console.change(ids[-500], created_at=datetime(2026, 1, 31, 12, tzinfo=UTC))
    monkeypatch.setattr(site, "SEARCH_WINDOWS", 1)
    shown = console.browser().get(f"{ORDERS}/items?error=nowhere").text
    assert f'Ids down to {ids[-500]:,}, created <time datetime="2026-01-31T12:00:00.000000Z"' in shown
    assert f"before={ids[-500]}" in shown


def test_pause_resume_and_forget(console: Console) -> None:
    browser, client, box = console.browser(), console.client(), console.boxes.box("order_outbox_item")
    pressed = browser.press(f"{ORDERS}/polling?decide=pause", f"{ORDERS}/polling", decide="pause")
    assert pressed.status == 303
    assert console.servers.pauses.polling_enabled([box]) == {box.name: False}
    assert client.post("/api/boxes/order-outbox-item/resume").json["paused"] is False
    assert console.servers.pauses.polling_enabled([box]) == {box.name: True}
    assert client.post("/api/boxes/order-outbox-item/forget").status == 200
    assert console.servers.pauses.polling_enabled([box]) == {}


def test_the_charts_have_what_workers_told_and_what_the_console_measured(console: Console) -> None:
    now = console.servers.clock.now()
    console.create()
    console.servers.history.add({"order_outbox_item": Happened(120, 6, {3: 99, 7: 1})}, now=now)
    box = console.client().get("/api/boxes/order-outbox-item").json
    assert 1 <= box["delivered_per_second"] <= 2
    assert (box["wait_p50_seconds"], box["wait_p99_seconds"]) == (0.05, 0.05)
    for span, step in (("hour", 60), ("day", 600)):
        found = console.client().get(f"/api/boxes/order-outbox-item/history?span={span}").json
        assert sum(found["delivered_per_second"]) * step == 120
        assert sum(found["failed_per_second"]) * step == pytest.approx(6)
        assert found["oldest_wait_seconds"][-1] is not None
    assert console.client().get("/api/boxes/order-outbox-item/history?span=year").status == 400


def test_a_worker_tells_what_it_delivers(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    project = Project(tmp_path, database=postgres_url, redis=redis_url)
    project.call("db", "create")
    project.fill(50)
    with project.worker() as worker:
        eventually(lambda: len(project.deliveries()) == 50)
        worker.stop()
    client = connect(redis_url)
    happened = RedisHistory(client).read("order_outbox_item", Span.DAY, now=datetime.now(UTC))
    assert sum(slot.happened.delivered for slot in happened) == 50
    client.close()


def test_inside_an_application_every_link_leads_back_into_the_console(console: Console) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    console.create()
    outer = Starlette(routes=[Mount("/boxengine", console.again(authenticate=lambda request: "Zoë").app)])
    browser = console.client(None)
    browser.app = outer
    page = browser.get(f"/boxengine{ORDERS}/items")
    assert page.status == 200
    assert 'href="/boxengine/static/console.css' in page.text
    assert 'href="/"' not in page.text
    assert browser.get("/boxengine/static/console.css").status == 200
