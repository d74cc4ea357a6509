"""The routes of sbmt-outbox's API: its front end, or a script written for it, could be pointed here."""

from __future__ import annotations

import json
from typing import Any

from tests.web.console.asgi import Answer, Client
from tests.web.console.conftest import READ, Console

ONE = "/api/outbox_classes/order-outbox-item"


def put(client: Client, sent: Any, path: str = ONE, **headers: str) -> Answer:
    return client.call(
        "PUT", path, body=json.dumps(sent).encode(), headers={"content-type": "application/json", **headers}
    )


def test_boxes_are_listed_by_side_with_their_number_in_a_header(console: Console) -> None:
    answer = console.client().get("/api/outbox_classes")
    assert answer.json == [
        {"id": "order-outbox-item", "polling_enabled": True},
        {"id": "combined-outbox-item", "polling_enabled": True},
        {"id": "secret-outbox-item", "polling_enabled": True},
    ]
    assert answer.headers["x-total-count"] == "3"
    assert console.client().get("/api/inbox_classes").json == [{"id": "payment-inbox-item", "polling_enabled": True}]


def test_a_put_pauses_and_resumes_and_a_delete_forgets(console: Console) -> None:
    client, box = console.client(), console.boxes.box("order_outbox_item")
    paused = {"id": "order-outbox-item", "polling_enabled": False}
    assert put(client, {"outbox_class": {"polling_enabled": False}}).json == paused
    assert console.servers.pauses.polling_enabled([box]) == {box.name: False}
    assert client.get(ONE).json == paused
    assert put(client, {"polling_enabled": "true"}).json["polling_enabled"] is True
    put(client, {"outbox_class": {"polling_enabled": "f"}})
    assert client.call("DELETE", ONE).json == paused, "what was forgotten is told"
    assert console.servers.pauses.polling_enabled([box]) == {}
    assert client.call("DELETE", ONE).json == "OK"
    assert client.get("/api/trail").json[0]["action"] == "forget"


def test_what_makes_no_sense_or_is_of_the_other_side_changes_nothing(console: Console) -> None:
    client, box = console.client(), console.boxes.box("order_outbox_item")
    wrong: list[Any] = [
        {},
        {"outbox_class": 5},
        {"outbox_class": {}},
        {"polling_enabled": None},
        {"polling_enabled": []},
    ]
    for sent in wrong:
        assert put(client, sent).status == 400, sent
    assert put(client, {"polling_enabled": False}, "/api/inbox_classes/order-outbox-item").status == 404
    assert put(console.client(READ), {"polling_enabled": False}).status == 403
    assert put(console.client(None), {"polling_enabled": False}).status == 401
    assert console.servers.pauses.polling_enabled([box]) == {}


def test_a_page_of_the_same_origin_needs_no_token_and_any_other_is_refused(console: Console) -> None:
    browser, sent = console.browser(), {"polling_enabled": False}
    assert put(browser, sent).status == 403, "who says nothing of where it comes from may be an old browser"
    assert put(browser, sent, origin="https://evil.example").status == 403
    assert put(browser, sent, sec_fetch_site="cross-site").status == 403
    assert put(browser, sent, origin="http://localhost").status == 200
