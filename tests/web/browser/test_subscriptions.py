"""Subscriptions of one log in a real browser: each is a box of its own, with its own numbers, items and pause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.web.browser.conftest import PHONE, Running
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
            connection, "sale_outbox_item", [{"event_key": str(n), "payload": b"{}"} for n in range(3)]
        )
    return running


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
