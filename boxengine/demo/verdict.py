"""Compares what was committed with what arrived."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, select

from boxengine.demo.payments import Booking
from boxengine.demo.shop import Committed


@dataclass(frozen=True, slots=True)
class Check:
    """One promise, and whether it was kept."""

    promise: str
    kept: bool
    detail: str


def judge(committed: Committed, record: Path, engine: Engine, *, crashed: bool) -> list[Check]:
    """Compares the record of the transport and the bookings of the handler with what the application committed.

    Args:
        record: the JSON lines that the transport wrote.
        crashed: whether a worker was killed; if so, deliveries may repeat, and only first deliveries are compared.
    """
    sent = _sent(record)
    first = list(dict.fromkeys(sent))
    wanted = {id_ for ids in committed.orders.values() for id_ in ids}
    missing, repeated = wanted.difference(first), len(sent) - len(first)
    ghosts = committed.rolled_back.intersection(first)
    with engine.connect() as connection:
        bookings = list(connection.scalars(select(Booking.item_id).order_by(Booking.id)))
    payments = {id_ for ids in committed.payments.values() for id_ in ids}
    once = len(bookings) == len(set(bookings)) and set(bookings) == payments
    once_more = f"{repeated} delivered again"
    return [
        Check("every committed order was delivered", not missing, f"{len(first):,} of {len(wanted):,}"),
        Check("each was delivered at least once", not missing, f"{once_more} after the kill")
        if crashed
        else Check("none was delivered twice", not repeated, once_more),
        Check(
            "orders of one customer arrived in order",
            _in_order(first, committed.orders),
            f"{len(committed.orders)} keys",
        ),
        Check("nothing that was rolled back was seen", not ghosts, f"{len(committed.rolled_back):,} rolled back"),
        Check("every payment was booked exactly once", once, f"{len(bookings):,} of {len(payments):,}"),
        Check(
            "payments of one account were booked in order",
            _in_order(bookings, committed.payments),
            f"{len(committed.payments)} keys",
        ),
    ]


def _sent(record: Path) -> list[int]:
    if not record.exists():
        return []
    with record.open("rb") as lines:
        return [int(json.loads(line)["id"]) for line in lines]


def _in_order(arrived: Iterable[int], by_key: dict[str, list[int]]) -> bool:
    key_of = {id_: key for key, ids in by_key.items() for id_ in ids}
    seen: dict[str, list[int]] = {}
    for id_ in arrived:
        if id_ in key_of:
            seen.setdefault(key_of[id_], []).append(id_)
    return seen == by_key
