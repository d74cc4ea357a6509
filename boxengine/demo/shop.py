"""The application of the demonstration: orders and payments, some of them rolled back."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass, field

from sqlalchemy import BigInteger, Engine, Integer, String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine.app.boxes import Boxes
from boxengine.domain.attributes import BatchAttributes

OUTBOX, INBOX = "order_outbox_item", "payment_inbox_item"
CUSTOMERS, ACCOUNTS = 200, 50
ROLLED_BACK = 0.1
"""The share of transactions that are rolled back."""


class Base(DeclarativeBase):
    """The tables of the shop."""


class Order(Base):
    """Business data: neither it nor its outbox row must ever exist without the other."""

    __tablename__ = "demo_orders"

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    customer: Mapped[str] = mapped_column(String(64))
    number: Mapped[int] = mapped_column(Integer)


@dataclass
class Committed:
    """What the application has committed: by key, the ids in the order of the commits."""

    orders: dict[str, list[int]] = field(default_factory=dict)
    payments: dict[str, list[int]] = field(default_factory=dict)
    rolled_back: set[int] = field(default_factory=set)
    """Ids of outbox rows whose transactions were rolled back."""
    transactions: int = 0

    @property
    def items(self) -> int:
        return sum(map(len, self.orders.values())) + sum(map(len, self.payments.values()))


class Shop:
    """Writes orders with their outbox rows, and stores payments in the inbox, until it has written enough."""

    def __init__(self, engine: Engine, boxes: Boxes, *, items: int, randomness: random.Random) -> None:
        self._engine = engine
        self._boxes = boxes
        self._items = items
        self._random = randomness
        self.committed = Committed()
        self.closed = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Runs one transaction after another: a single order, a batch of orders, or received payments."""
        try:
            while self.committed.items < self._items and not self.closed.is_set():
                size = self._random.choice((1, 1, 10, 100))
                if self._random.random() < 0.7:  # noqa: PLR2004 - the demonstration's mixture
                    self._place_orders(size)
                else:
                    self._receive_payments(size)
                self.committed.transactions += 1
        except Exception as error:  # shown by the main thread
            self.error = error
        finally:
            self.closed.set()

    def _place_orders(self, count: int) -> None:
        known = self.committed.orders
        customers = [f"customer-{self._random.randrange(CUSTOMERS)}" for _ in range(count)]
        numbers = _numbered(customers, known)
        change_of_mind = self._random.random() < ROLLED_BACK
        with Session(self._engine) as session:
            rows = [{"customer": customer, "number": number} for customer, number in numbers]
            session.execute(insert(Order), rows)
            items: list[BatchAttributes] = [
                {"event_key": customer, "event_name": "order_placed", "payload": _payload(customer, number)}
                for customer, number in numbers
            ]
            if count == 1:
                ids = [self._boxes.create_outbox_item(session, OUTBOX, **items[0])]
            else:
                ids = self._boxes.create_outbox_batch(session, OUTBOX, items)
            if change_of_mind:
                session.rollback()
                self.committed.rolled_back.update(ids)
                return
            session.commit()
        for customer, id_ in zip(customers, ids, strict=True):
            known.setdefault(customer, []).append(id_)

    def _receive_payments(self, count: int) -> None:
        known = self.committed.payments
        accounts = [f"account-{self._random.randrange(ACCOUNTS)}" for _ in range(count)]
        numbers = _numbered(accounts, known)
        with Session(self._engine) as session:
            items: list[BatchAttributes] = [
                {"event_key": account, "payload": _payload(account, number)} for account, number in numbers
            ]
            ids = self._boxes.create_inbox_batch(session, INBOX, items)
            session.commit()
        for account, id_ in zip(accounts, ids, strict=True):
            known.setdefault(account, []).append(id_)


def _numbered(keys: list[str], known: dict[str, list[int]]) -> list[tuple[str, int]]:
    """Each key with its next number, from 1, counting what was committed before."""
    counts = {key: len(known.get(key, ())) for key in keys}
    numbered = []
    for key in keys:
        counts[key] += 1
        numbered.append((key, counts[key]))
    return numbered


def _payload(key: str, number: int) -> bytes:
    return json.dumps({"key": key, "number": number}).encode()
