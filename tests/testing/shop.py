"""A small application under test: orders, invoices, and their boxes."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Delete, Engine, String, Update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine import Failure, InboxItem, Item, Job, JobItem, OutboxItem, SequencedItem, create_outbox_item

CONFIGURATION = """
app: tests.testing.shop
outbox_items:
  order_outbox_item:
    model: tests.testing.shop.OrderOutboxItem
    strict_order: key
    max_retries: 2
    transports:
      tests.testing.shop.Announce: {}
  ticket_outbox_item:
    model: tests.testing.shop.TicketOutboxItem
    sequence: true
    transports:
      tests.testing.shop.Announce: {}
inbox_items:
  payment_inbox_item:
    model: tests.testing.shop.PaymentInboxItem
    transports:
      tests.testing.shop.WriteInvoice: {}
job_items:
  report_job:
    model: tests.testing.shop.ReportJob
    tasks: {export: tests.testing.shop.export}
"""


class Base(DeclarativeBase):
    pass


class OrderOutboxItem(OutboxItem, Base):
    __tablename__ = "order_outbox_items"


class TicketOutboxItem(SequencedItem, OutboxItem, Base):
    __tablename__ = "ticket_outbox_items"


class PaymentInboxItem(InboxItem, Base):
    __tablename__ = "payment_inbox_items"


class ReportJob(JobItem, Base):
    __tablename__ = "report_jobs"


class Invoice(Base):
    __tablename__ = "invoices"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(String(100))


class Announce:
    """Refuses what is said to be refused."""

    def __call__(self, item: Item, payload: Any) -> Any:
        if payload == b"raise":
            raise ConnectionError("the line is cut")
        return Failure("not today") if payload == b"fail" else None


class WriteInvoice:
    def __call__(self, item: Item, payload: Any, *, session: Session) -> None:
        session.add(Invoice(text=payload.decode()))
        session.flush()
        if payload == b"broken":
            raise ValueError("no such customer")


def export(job: Job) -> None:
    """Does nothing: a drain runs no jobs."""


def place_order(session: Any, number: int, what: str) -> None:
    create_outbox_item(
        session, OrderOutboxItem, event_key=number, event_name="order_placed", payload=json.dumps({"what": what})
    )


class RoutingSession(Session):
    """Writes to the leader and reads from a follower, as SQLAlchemy's documentation has it."""

    def __init__(self, leader: Engine, follower: Engine) -> None:
        super().__init__()
        self._leader, self._follower = leader, follower

    def get_bind(self, mapper: Any = None, *, clause: Any = None, **_options: Any) -> Any:
        return self._leader if self._flushing or isinstance(clause, Update | Delete) else self._follower
