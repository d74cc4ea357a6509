"""What the tests of bounds on both databases share: one box's table, applications that write to it, and workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.domain.bounds import Pace
from boxengine.domain.box import Box, BoxType, StrictOrder
from boxengine.domain.outcome import Settlement

ALWAYS = Pace(items=1, slow=0.0, parts=1, shortest=0.0, share=0.0)
"""Bounds are used whatever the walk takes, and every move is followed by a look from the start."""
NEVER_FROM_START = Pace(items=1, slow=0.0, shortest=1e9)
"""Without the looks from the start that would make up for a bound that is too high."""
TABLE = "order_items"


def make_box(strict_order: StrictOrder = StrictOrder.NONE) -> Box:
    return Box(name="order_item", type=BoxType.OUTBOX, table=TABLE, bucket_size=2, strict_order=strict_order)


class BoundsScene(ABC):
    """One box's table, applications that write to it, and workers. Each database's own tests open the connections."""

    def __init__(self, url: str, box: Box) -> None:
        self.box = box
        self.address = sa.make_url(url)
        self._opened: list[Any] = []
        self.store = self.worker(NEVER_FROM_START)
        schema.create(self.store.engine, [box])
        self.direct = self.connection(autocommit=True)

    def worker(self, pace: Pace, *, user: str | None = None) -> SqlStore:
        address = self.address if user is None else self.address.set(username=user)
        store = SqlStore(connect(address.render_as_string(hide_password=False), connections=3), pace=pace)
        self._opened.append(store)
        return store

    @abstractmethod
    def connection(self, *, autocommit: bool = False) -> Any:
        """A connection of the driver's own, which ``close`` closes."""

    @abstractmethod
    def insert(self, on: Any = None, *, bucket: int = 0, **columns: Any) -> int:
        """Inserts a row through ``direct`` or another connection; its id."""

    def close(self) -> None:
        for each in reversed(self._opened):
            each.close()

    def deliver(self, store: SqlStore | None = None) -> list[int]:
        """All that a claim finds; their ids."""
        with (store or self.store).plain_claims(self.box).open({0: None, 1: None}, 100) as claim:
            ids = [item.id for item in claim.items]
            if ids:
                claim.commit(Settlement(delivered=ids))
        return ids

    def advance(self, store: SqlStore | None = None) -> set[int]:
        """Until what could be adopted is: the walk is timed, an id is proposed, and the bounds move up to it."""
        return {bucket for _ in range(4) for bucket in (store or self.store).advance(self.box)}

    def bounds(self, store: SqlStore | None = None) -> list[int]:
        found = (store or self.store)._bounds.of(self.box)
        return [found.after(bucket) for bucket in self.box.buckets]

    def deliver_and_advance(self, count: int = 3) -> int:
        """Returns the last id, behind which the bounds now stand."""
        last = max(self.insert(bucket=n % 2, event_key="other") for n in range(count))
        assert last in self.deliver()
        self.advance()
        return last
