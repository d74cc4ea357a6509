"""Service A: places orders. `python place_orders.py 100` places a hundred, one transaction each."""

import json
import sys

from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert
from sqlalchemy.orm import Session

import boxengine

CUSTOMERS = 10

metadata = MetaData()
orders = Table(
    "orders",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("customer", String(50), nullable=False),
    Column("amount", Integer, nullable=False),
)


def place(boxes: boxengine.Boxes, session: Session, *, customer: str, amount: int) -> None:
    """Stores the order and the message that tells of it: both or neither."""
    (number,) = session.execute(insert(orders).values(customer=customer, amount=amount).returning(orders.c.id)).one()
    message = {"order": number, "customer": customer, "amount": amount}
    boxes.create_outbox_item(
        session, "order_outbox_item", event_key=customer, event_name="order_placed", payload=json.dumps(message)
    )


def main(count: int) -> None:
    boxes = boxengine.load("outbox.yml")
    engine = create_engine(str(boxes.resolved.settings.database.url))
    metadata.create_all(engine)
    for n in range(count):
        with Session(engine) as session, session.begin():
            place(boxes, session, customer=f"customer-{n % CUSTOMERS}", amount=n + 1)
    engine.dispose()
    print(f"{count} orders placed")


if __name__ == "__main__":
    main(int(sys.argv[1]))
