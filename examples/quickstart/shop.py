"""An orders service: the model of its outbox, a transport of its own, and a transaction that writes both."""

import os
import sys
from typing import Any

from sqlalchemy import String, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine import Item, OutboxItem, create_outbox_item


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    what: Mapped[str] = mapped_column(String(100))


class OrderOutboxItem(OutboxItem, Base):
    __tablename__ = "order_outbox_items"


class Announce:
    """The transport. Whatever it does not raise, or return False or Failure for, counts as delivered."""

    def __init__(self, *, greeting: str) -> None:
        self.greeting = greeting

    def __call__(self, item: Item, payload: Any) -> None:
        print(self.greeting, item.event_key, payload.decode(), flush=True)


def place_order(url: str, what: str) -> int:
    """Order and outbox row commit together, or neither does."""
    engine = create_engine(url)
    with Session(engine) as session, session.begin():
        order = Order(what=what)
        session.add(order)
        session.flush()
        create_outbox_item(session, OrderOutboxItem, event_key=order.id, payload=what, event_name="order_placed")
        number = order.id
    engine.dispose()
    return number


def make_tables(url: str) -> None:
    """The table of orders; `boxengine db create` makes that of the outbox."""
    engine = create_engine(url)
    Base.metadata.create_all(engine, [Base.metadata.tables["orders"]])
    engine.dispose()


if __name__ == "__main__":
    make_tables(os.environ["DATABASE_URL"])
    print("order", place_order(os.environ["DATABASE_URL"], sys.argv[1]))
