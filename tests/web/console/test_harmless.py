"""Whatever stands in an item or is typed into a filter, it does no harm."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from boxengine.app.servers.connected import Patience, connect
from boxengine.web.console import site
from boxengine.web.console.application import build
from tests.web.console.conftest import Console

ORDERS = "/boxes/order-outbox-item"
API = "/api/boxes/order-outbox-item"
HTML = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{7*7}}"""


def test_html_in_every_field_of_an_item_is_text(console: Console) -> None:
    item = {
        "event_key": HTML,
        "event_name": HTML,
        "payload": HTML,
        "options": {HTML: HTML, "headers": {"traceparent": HTML}},
        "dedup_key": HTML,
    }
    (item_id, follower) = console.create("combined/outbox_item", item, {**item, "dedup_key": None})
    console.fail(item_id, HTML, box="combined/outbox_item")
    browser, place = console.browser(), "/boxes/combined-outbox-item"
    browser.press("/", "/login", token="the-token-to-operate", name=HTML)
    browser.press(f"{place}/act?action=retry&id={item_id}", f"{place}/act", action="retry", id=item_id)
    for path in ("/", place, f"{place}/items", f"{place}/items/{item_id}", f"{place}/items/{follower}", "/trail"):
        answer = browser.get(path)
        assert answer.status == 200, path
        assert "<script>alert" not in answer.text, path
        assert "<img" not in answer.text, path


@pytest.mark.parametrize(
    "odd",
    [
        '{"a": "\\ud800"}',
        '{"\\udfff": 1}',
        '{"a": 1e400}',
        '["' + "\\u202e" + '"]',
        "[" * 900 + "]" * 900,
        "[" * 3_000 + "]" * 3_000,
    ],
)
def test_odd_json_in_payload_and_options_breaks_no_page(console: Console, odd: str) -> None:
    (item_id,) = console.create("payment_inbox_item", payload=odd.encode())
    with console.engine.begin() as other:
        other.exec_driver_sql("ALTER TABLE payment_inbox_items ALTER COLUMN options TYPE json USING options::json")
    console.change(item_id, box="payment_inbox_item", options=odd)
    for path in ("/boxes/payment-inbox-item/items", f"/boxes/payment-inbox-item/items/{item_id}"):
        assert console.browser().get(path).status == 200
    found = console.client().get(f"/api/boxes/payment-inbox-item/items/{item_id}")
    assert found.status == 200
    assert found.json["payload"]["kind"] in ("json", "text")


def test_what_would_reorder_or_colour_a_sentence_is_shown_as_an_escape(console: Console) -> None:
    item_id, _ = console.create(count=2, event_key="a\u202eb")
    console.fail(item_id, "http: \x1b[31mTimeout\x1b[0m: \u2067no answer\r\nsecond\u00a0line")
    browser = console.browser()
    for path in ("/", ORDERS, f"{ORDERS}/items", f"{ORDERS}/items/{item_id}"):
        page = browser.get(path).text
        assert "\\x1b[31mTimeout\\x1b[0m: \\u2067no answer" in page, path
        assert not any(each in page for each in "\x1b\u2067"), path
    assert "1 item of key a\\u202eb waits for item" in browser.get("/").text
    assert "second\u00a0line" in browser.get(f"{ORDERS}/items/{item_id}").text


def test_a_key_or_name_that_would_reorder_the_page_is_shown_with_escapes_and_chosen_as_it_is(console: Console) -> None:
    key, event = "rtl\u202egnp.exe", "created\u2066"
    first, _ = console.create(count=2, event_key=key, event_name=event)
    browser = console.browser()
    question = f"{ORDERS}/act?{urlencode({'action': 'discard', 'status': 'pending', 'key': key})}"
    for path in (f"{ORDERS}/items", f"{ORDERS}/items/{first}", question):
        shown = re.sub(r"<input[^>]*>", "", browser.get(path).text)
        assert "rtl\\u202egnp.exe" in shown, path
        assert not any(each in shown for each in "\u202e\u2066"), path
    answer = browser.press(question, f"{ORDERS}/act", action="discard", status="pending", key=key)
    assert "2 items discarded" in browser.get(answer.headers["location"]).text
    assert "rtl\\u202egnp.exe" in browser.get("/trail").text


def test_a_statement_that_takes_too_long_is_broken_off_with_a_sentence(console: Console) -> None:
    servers = connect(console.boxes.resolved.settings, patience=Patience(statement_limit=timedelta(milliseconds=50)))
    limited = Console(console.boxes, servers, console.engine, build(console.boxes, servers=servers))
    client = limited.client()
    try:
        with console.engine.begin() as other:
            # Whoever waits for this lock waits until the limit ends the statement.
            other.exec_driver_sql("LOCK TABLE order_outbox_items")
            answer = client.get(f"{API}/items?status=failed")
        assert answer.status == 503
        assert "took too long" in answer.json["error"]
        assert client.get(f"{API}/items?status=failed").status == 200
    finally:
        servers.close()


def test_counts_end_at_their_cap(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "COUNTED_TO", 3)
    for item_id in console.create(count=5):
        console.fail(item_id)
    counted = console.client().get(f"{API}/items/count?status=failed").json
    assert counted["number"] == 3
    assert counted["precision"] == "at_least"
    assert "Over 3 items" in console.browser().get(f"{ORDERS}/items?status=failed&limit=2").text


def test_no_page_needs_what_the_policy_forbids(console: Console) -> None:
    (item_id,) = console.create()
    console.fail(item_id)
    browser = console.browser()
    for path in (
        "/",
        ORDERS,
        f"{ORDERS}/items",
        f"{ORDERS}/items/{item_id}",
        f"{ORDERS}/act?action=retry&id=1",
        "/trail",
    ):
        text = browser.get(path).text
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style|javascript:", text), path
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text), f"{path} loads something from elsewhere"


def test_every_answer_carries_the_headers_that_protect_it(console: Console) -> None:
    for answer in (
        console.browser().get("/"),
        console.client().get("/api/overview"),
        console.client(None).get("/api/overview"),
        console.client(None).get("/static/console.css"),
        console.client().get("/nothing-here"),
    ):
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert console.client().get("/api/overview").headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("status=broken", "status: expected pending"),
        ("id=x", "id: expected a whole number"),
        ("id=99999999999999999999", "id: expected a whole number"),
        ("id=-1", "id: expected a whole number"),
        ("id=٣", "id: expected a whole number"),
        ("key=" + "x" * 256, "key: at most 255 characters"),
        ("key=%00", "key: holds a character"),
        ("uuid=nonsense", "uuid: expected one such as"),
        ("from=yesterday", "from: expected a moment"),
        ("from=P99999999999Y", "from: expected a moment"),
        ("to=0001-01-01T00:00%2B14:00", "to: expected a moment"),
        ("before=1&after=1", "exclude each other"),
        ("limit=0", "limit: expected a whole number from 1 to 200"),
        ("limit=1000", "limit: expected a whole number from 1 to 200"),
        ("colour=red", "'colour' is not known here"),
    ],
)
def test_a_filter_that_makes_no_sense_gets_a_sentence(console: Console, query: str, expected: str) -> None:
    answer = console.client().get(f"{API}/items?{query}")
    assert (answer.status, expected in answer.json["error"]) == (400, True), answer.json
    if "colour" not in query:
        page = console.browser().get(f"{ORDERS}/items?{query}")
        assert page.status == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b"[" * 100_000, 400),
        (b'{"action": 5}', 400),
        (b'{"action": "retry", "filter": []}', 400),
        (b'{"action": "retry", "filter": {"id": [true]}}', 400),
        (b'{"action": "retry", "filter": {"id": [[1]]}}', 400),
        (b'{"action": "retry", "filter": {"key": {}}}', 400),
        (b'{"action": "retry", "filter": {"status": "delivered"}}', 409),
        (b'{"action": "retry", "filter": {"key": "\\ud800"}}', 400),
        (b" " * 70_000, 413),
    ],
)
def test_a_body_that_makes_no_sense_gets_a_sentence(console: Console, body: bytes, status: int) -> None:
    answer = console.client().call("POST", f"{API}/actions", body=body, headers={"content-type": "application/json"})
    assert answer.status in (status, 413), answer.text
    assert answer.json["error"].endswith(".")


def test_a_body_of_another_kind_is_refused(console: Console) -> None:
    answer = console.client().call("POST", f"{API}/actions", body=b"<a/>", headers={"content-type": "text/xml"})
    assert answer.status == 415


# ── hidden ───────────────────────────────────────────────────────────────────────────────────────────


def shown(console: Console, box: str, payload: Any, **more: Any) -> Any:
    (item_id,) = console.create(box, payload=payload, **more)
    return console.client().get(f"/api/boxes/{box.replace('_', '-')}/items/{item_id}").json


def test_payloads_of_a_hidden_box_are_shown_nowhere(console: Console) -> None:
    found = shown(console, "secret_outbox_item", "a plain secret")
    assert found["payload"] == {"kind": "hidden", "text": "", "bytes": 14, "cut": False}
    page = console.browser().get(f"/boxes/secret-outbox-item/items/{found['id']}").text
    assert "a plain secret" not in page
    assert "Hidden by the configuration" in page


def test_a_hidden_path_is_hidden_in_payload_and_options_wherever_lists_lead(console: Console) -> None:
    value = {"customer": [{"email": "zoe@example.com", "name": "Zoë"}], "email": "shown@example.com"}
    found = shown(console, "order_outbox_item", json.dumps(value), options={"customer": {"email": "zoe@example.com"}})
    assert json.loads(found["payload"]["text"]) == {
        "customer": [{"email": "***", "name": "Zoë"}],
        "email": "shown@example.com",
    }
    assert found["options"] == {"customer": {"email": "***"}}


def test_what_is_no_json_is_hidden_where_paths_are(console: Console) -> None:
    assert shown(console, "order_outbox_item", "email: zoe@example.com")["payload"]["kind"] == "hidden"


def test_values_whose_names_say_that_they_are_secrets_are_never_shown(console: Console) -> None:
    found = shown(
        console,
        "payment_inbox_item",
        json.dumps({"card": {"api_key": "s3cret"}, "url": "https://me:s3cret@example.com"}),
        options={"headers": {"Authorization": "Bearer s3cret-token"}},
    )
    assert "s3cret" not in json.dumps(found)


def test_passwords_in_errors_are_masked(console: Console) -> None:
    (item_id,) = console.create()
    console.fail(item_id, "http: Timeout: https://me:s3cret@shop.example/ did not answer")
    browser = console.browser()
    for path in ("/", ORDERS, f"{ORDERS}/items", f"{ORDERS}/items/{item_id}"):
        assert "s3cret" not in browser.get(path).text, path
    assert "s3cret" not in console.client().get("/api/overview").text
