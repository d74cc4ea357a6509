"""Models as an application writes them."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import InboxItem, OutboxItem
from boxengine.domain.item import Item


class Base(DeclarativeBase):
    """The application's own."""


class Order(Base):
    """A business row."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(String(100))


class OrderOutboxItem(OutboxItem, Base):
    """Its events."""

    __tablename__ = "order_outbox_items"


class PaymentMessage(InboxItem, Base):
    """Received messages; the class name is not the box's."""

    __tablename__ = "payment_inbox_items"
    __box_name__ = "payment_inbox_item"


class ReceiptOutboxItem(OutboxItem, Base):
    """Items whose payload is made when they are sent."""

    __tablename__ = "receipt_outbox_items"

    @staticmethod
    def build_payload(item: Item) -> object:
        """What goes out instead of the stored bytes."""
        return {"id": item.id, "stored": item.payload.decode()}
