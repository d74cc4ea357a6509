"""Service B: writes an invoice for each order and adds it to the customer's account.

Adding is not idempotent: an order that were handled twice would show. It is not, because what the handler writes
through `session` commits in the same transaction as the inbox item's status.
"""

import json
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, create_engine
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

import boxengine

metadata = MetaData()
invoices = Table(
    "invoices",
    metadata,
    Column("id", BigInteger, primary_key=True),
    Column("order_id", Integer, nullable=False),  # not unique on purpose: nothing here would catch a repetition
    Column("customer", String(50), nullable=False),
    Column("amount", Integer, nullable=False),
)
accounts = Table(
    "accounts",
    metadata,
    Column("customer", String(50), primary_key=True),
    Column("total", Integer, nullable=False),
)


class Bill:
    """The inbox's transport: called once for each order that takes effect."""

    def __call__(self, _item: Any, payload: bytes, *, session: Session) -> None:
        order = json.loads(payload)
        customer, amount = order["customer"], order["amount"]
        session.execute(invoices.insert().values(order_id=order["order"], customer=customer, amount=amount))
        owed = insert(accounts).values(customer=customer, total=amount)
        session.execute(
            owed.on_conflict_do_update(index_elements=[accounts.c.customer], set_={"total": accounts.c.total + amount})
        )


def main() -> None:
    """Makes the tables."""
    boxes = boxengine.load("outbox.yml")
    engine = create_engine(str(boxes.resolved.settings.database.url))
    metadata.create_all(engine)
    engine.dispose()


if __name__ == "__main__":
    main()
