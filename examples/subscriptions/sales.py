"""One log of sales, read by two receivers: billing and search."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from boxengine import Item, create_outbox_item


class Bill:
    """Billing: an invoice for each sale."""

    def __call__(self, item: Item, payload: Any) -> None:
        print("invoice for", item.event_key, payload.decode(), flush=True)


class Index:
    """Search: makes what was sold easy to find."""

    def __call__(self, item: Item, payload: Any) -> None:
        print("indexed", payload.decode(), "as", item.id, flush=True)


def sell(connection: Connection, customer: str, things: Sequence[str]) -> None:
    """Writes one item for each sale, whoever reads them."""
    for what in things:
        create_outbox_item(connection, "sale_outbox_item", event_key=customer, payload=what)
