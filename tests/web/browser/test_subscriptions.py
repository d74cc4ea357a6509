"""Subscriptions of one log in a real browser: each is a box of its own, with its own numbers, items and pause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import boxengine
from tests.eventually import eventually
from tests.web.browser.conftest import DESK, PHONE, Running
from tests.web.console.conftest import CONFIGURATION, Console

pytestmark = pytest.mark.xdist_group("browser")
BILLING, SEARCH = "sale_outbox_item.billing", "sale_outbox_item.search"
AT_BILLING = "/boxes/sale-outbox-item.billing"
SALES = CONFIGURATION.replace(
    "inbox_items:",
    "  sale_outbox_item:\n    storage: log\n    subscriptions:\n"
    "      billing: {{strict_order: key, max_retries: 3, transports: {{log: {{}}}}}}\n"
    "      search: {{transports: {{log: {{}}}}}}\ninbox_items:",
)


@pytest.fixture
def sales(serve: Callable[[Console], Running], make_console: Callable[..., Console], postgres_url: str) -> Running:
    """A console with a log that has two subscriptions, both of which have three items to deliver."""
    running = serve(make_console(postgres_url, SALES))
    boxes = running.console.boxes
    with running.console.engine.begin() as connection:
        boxes.create_outbox_batch(
            connection, "sale_outbox_item", [{"event_key": str(n), "payload": b'{"sale": 1}'} for n in range(3)]
        )
    return running


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_what_waits_in_the_log_is_seen_from_the_box_to_the_single_item(sales: Running, width: int, scheme: str) -> None:
    tab = sales.tab(width=width, scheme=scheme).sign_in()
    page, kind = tab.page, f"{'phone' if width == PHONE else 'desk'}-{scheme}"
    tab.go(AT_BILLING)
    assert tab.faults() == []
    tab.shoot(f"console-log-box-{kind}")
    page.get_by_role("region", name="Waiting in the log").get_by_role("link", name="Bucket").first.click()
    page.get_by_role("heading", level=1, name="waiting in the log").wait_for()
    assert tab.faults() == []
    tab.shoot(f"console-log-bucket-{kind}")
    first = page.get_by_role("table").get_by_role("link").first
    item = first.inner_text()
    first.click()
    page.get_by_role("heading", level=1, name=f"Item {item} pending").wait_for()
    why = page.locator(".why")
    why.get_by_text("It waits in the log: no delivery has passed it yet.").wait_for()
    why.get_by_text("No worker runs for this box.").wait_for()
    assert page.locator("pre").first.inner_text() == '{\n  "sale": 1\n}'
    assert page.get_by_role("button", name="Discard…").count() == 0, "people can act on items in the table alone"
    assert tab.faults() == []
    tab.shoot(f"console-log-item-{kind}")


def test_once_a_subscription_has_passed_its_items_they_are_shown_as_passed_there_and_wait_for_the_other(
    sales: Running,
) -> None:
    console = sales.console
    page = sales.tab().sign_in().go(AT_BILLING).page
    api = console.client().get("/api/boxes/sale-outbox-item.billing/log").json["buckets"]
    first = min(each["first"] for each in api)
    assert sum(each["waiting"]["number"] for each in api) == 3
    with boxengine.running(console.boxes, boxes=[BILLING]):
        eventually(lambda: not console.servers.store.pending_in_log(console.boxes.box(BILLING), most=1).number)
    page.goto(f"{sales.url}{AT_BILLING}/items/{first}")
    page.get_by_text("It has been passed in the log: delivered, skipped, or deleted after it failed.").wait_for()
    page.get_by_role("heading", level=1, name=f"Item {first} passed").wait_for()
    page.goto(f"{sales.url}/boxes/sale-outbox-item.search/items/{first}")
    page.get_by_text("It waits in the log: no delivery has passed it yet.").wait_for()
    one = console.client().get(f"/api/boxes/sale-outbox-item.search/items/{first}").json
    assert (one["in_log"], one["status"]) == (True, "pending")
    page.goto(f"{sales.url}{AT_BILLING}/log")
    page.get_by_text("Nothing waits in the log.").wait_for()


def test_one_subscription_is_seen_paused_and_resumed_while_the_other_stays(sales: Running) -> None:
    tab = sales.tab(width=PHONE, scheme="dark").sign_in()
    page = tab.page
    for name in (BILLING, SEARCH):
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name))
        assert row.locator("[data-label=Pending]").inner_text() == "3"
    assert tab.faults() == []
    page.get_by_role("link", name=BILLING).first.click()
    page.get_by_role("heading", level=1, name=BILLING).wait_for()
    assert tab.faults() == []
    page.get_by_role("link", name="Items").first.click()
    page.wait_for_url(f"**{AT_BILLING}/items")
    assert page.get_by_role("heading", level=1).inner_text() == "Items"
    assert tab.faults() == []
    site = sales.console.app.state.site
    boxes = [site.box(name) for name in (BILLING, SEARCH)]

    def decided() -> dict[str, bool]:
        return dict(sales.console.servers.pauses.polling_enabled(boxes))

    for word, running in (("Pause", False), ("Resume", True)):
        tab.go(AT_BILLING)
        page.get_by_role("link", name=word, exact=True).click()
        page.get_by_role("button", name=word).click()
        page.wait_for_url(f"**{AT_BILLING}")
        # The page comes after the decision was written.
        assert decided() == {BILLING: running}, "nobody has decided about the other one"
