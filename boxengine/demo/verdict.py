"""Compares what was committed with what arrived."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, TableClause, column, select, table

from boxengine.demo.payments import Booking
from boxengine.demo.shop import Committed
from boxengine.domain.item import Status

ORDERS, PAYMENTS = (
    table(name, column("id"), column("status")) for name in ("order_outbox_items", "payment_inbox_items")
)


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and whether it was kept."""

    promise: str
    kept: bool
    detail: str
    waiting: int = 0
    """Items still on their way when the time was over, for which the promise is neither kept nor broken."""


def judge(committed: Committed, record: Path, engine: Engine, *, crashed: bool) -> list[Check]:
    """Compares the record of the transport and the bookings of the handler with what the application committed.

    Args:
        record: the JSON lines that the transport wrote.
        crashed: whether a worker was killed; if so, deliveries may repeat, and only first deliveries are compared.
    """
    with engine.connect() as connection:
        # Before what arrived is read: an item that arrives meanwhile is in both.
        pending_orders, pending_payments = _pending(connection, ORDERS), _pending(connection, PAYMENTS)
        sent = _sent(record)
        bookings = list(connection.scalars(select(Booking.item_id).order_by(Booking.id)))
    first = list(dict.fromkeys(sent))
    orders, payments = _ids(committed.orders), _ids(committed.payments)
    missing, repeated = orders.difference(first), len(sent) - len(first)
    waiting, unbooked = missing & pending_orders, payments.difference(bookings)
    ghosts = committed.rolled_back.intersection(first)
    once = len(bookings) == len(set(bookings)) and payments.issuperset(bookings) and unbooked <= pending_payments
    arrived, once_more = missing == waiting, f"{repeated} delivered again"
    return [
        Check("every committed order was delivered", arrived, f"{len(first):,} of {len(orders):,}", len(waiting)),
        Check("each was delivered at least once", arrived, f"{once_more} after the kill", len(waiting))
        if crashed
        else Check("none was delivered twice", not repeated, once_more),
        Check(
            "orders of one customer arrived in order",
            _in_order(first, committed.orders),
            f"{len(committed.orders)} keys",
        ),
        Check("nothing that was rolled back was seen", not ghosts, f"{len(committed.rolled_back):,} rolled back"),
        Check(
            "every payment was booked exactly once",
            once,
            f"{len(bookings):,} of {len(payments):,}",
            len(unbooked),
        ),
        Check(
            "payments of one account were booked in order",
            _in_order(bookings, committed.payments),
            f"{len(committed.payments)} keys",
        ),
    ]


def _pending(connection: Connection, items: TableClause) -> set[int]:
    return set(connection.scalars(select(items.c.id).where(items.c.status == Status.PENDING)))


def _ids(by_key: dict[str, list[int]]) -> set[int]:
    return {id_ for ids in by_key.values() for id_ in ids}


def _sent(record: Path) -> list[int]:
    if not record.exists():
        return []
    with record.open("rb") as lines:
        # The worker may be in the middle of the last line.
        return [int(json.loads(line)["id"]) for line in lines if line.endswith(b"\n")]


def _in_order(arrived: Iterable[int], by_key: dict[str, list[int]]) -> bool:
    """Whether what arrived of each key is what was committed first, in the same order."""
    key_of = {id_: key for key, ids in by_key.items() for id_ in ids}
    seen: dict[str, list[int]] = {}
    for id_ in arrived:
        if id_ in key_of:
            seen.setdefault(key_of[id_], []).append(id_)
    return all(ids == by_key[key][: len(ids)] for key, ids in seen.items())
