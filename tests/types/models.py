"""The models that ``mistakes`` and ``right_uses`` work with, and objects that the checkers only look at."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from boxengine import InboxItem, OutboxItem, Payload


class Base(DeclarativeBase):
    pass


@dataclass
class Order:
    id: int
    total: int


@dataclass
class Payment:
    account: str


class PlainOutboxItem(OutboxItem, Base):
    __tablename__ = "plain_outbox_items"

    tenant: Mapped[str | None] = mapped_column()


class OrderOutboxItem(OutboxItem[Order], Base):
    __tablename__ = "order_outbox_items"
    __payload__ = Payload.pydantic(Order)


class PaymentInboxItem(InboxItem[Payment], Base):
    __tablename__ = "payment_inbox_items"
    __payload__ = Payload.pydantic(Payment)
