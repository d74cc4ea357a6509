"""The inbox side of the demonstration: a handler that books each payment exactly once."""

from __future__ import annotations

import json

from sqlalchemy import BigInteger, Integer, String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine.domain.item import Item


class Base(DeclarativeBase):
    """The tables of the billing side."""


class Booking(Base):
    """One payment, booked."""

    __tablename__ = "demo_bookings"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    item_id: Mapped[int] = mapped_column(BigInteger)
    account: Mapped[str] = mapped_column(String(64))
    number: Mapped[int] = mapped_column(Integer)
    """The payment's number within its account, from 1."""


class BookPayment:
    """Writes in the engine's own transaction: the booking and the item's status commit together, or neither does."""

    def call_batch(self, items: list[Item], session: Session) -> list[None]:
        """Books all payments of a batch with one statement."""
        rows = [
            {"item_id": item.id, "account": item.event_key, "number": json.loads(item.payload)["number"]}
            for item in items
        ]
        session.execute(insert(Booking), rows)
        return [None] * len(items)
