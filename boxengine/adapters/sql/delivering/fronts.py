"""Where the pending rows of each bucket begin, for processes that only look.

A delivered row leaves a dead entry in the index until the next vacuum. Behind a busy worker hundreds of thousands of them
stand before the first pending row, and each question about the oldest rows would walk over all of them. So one look finds the
first pending row of each bucket, and the next questions and the next look begin there.

Rows can come back before a front: people retry an item, a transaction commits late. Now and then a look begins at the start
and finds them. It walks over all dead entries, so it has a short time limit; what it walked over, PostgreSQL passes more quickly
the next time. Nothing but what people see depends on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.connecting.limiting import SHORT, took_too_long, within
from boxengine.adapters.sql.shape.tables import PENDING_BY_BUCKET, BoxTable
from boxengine.domain.box import Storage
from boxengine.errors import StoreUnavailable

EVERY = 1.0
"""Seconds for which a look is good enough."""
FROM_START = 30.0
"""Seconds between two looks from the start, if nothing is known to have come back."""
SHARE = 0.001
"""The share of its time that the database may spend on looks from the start, also while people retry one item after the other."""
LARGE = 100_000
"""A front at a lower id is not used: there cannot be many entries before it."""


class _Known(NamedTuple):
    after: Mapping[int, int]
    looked_at: float
    from_start_at: float
    cost: float
    """Seconds that the last look from the start took."""


class Fronts:
    """The fronts of all boxes."""

    def __init__(
        self,
        opened: Callable[[], AbstractContextManager[Cursor]],
        *,
        large: int = LARGE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        opened: opens a cursor on which each statement is a transaction of its own.
        large: see ``LARGE``.
        """
        self._opened = opened
        self._large = large
        self._monotonic = monotonic
        self._known: dict[str, _Known] = {}
        self._forgotten: set[str] = set()
        self._lock = threading.Lock()

    def of(self, table: BoxTable) -> Mapping[int, int]:
        """By bucket, the id after which its pending rows begin."""
        start = dict.fromkeys(table.box.buckets, 0)
        if table.box.storage is not Storage.TABLE or table.pending_first != PENDING_BY_BUCKET:
            return start
        with self._lock:
            now, known = self._monotonic(), self._known.get(table.box.name)
            if known is None:
                known = self._from_start(self._look(table, start), now)
            elif self._begins_anew(table, known, now):
                self._forgotten.discard(table.box.name)
                known = self._from_start(self._look_shortly(table, start) or known.after, now)
            elif any(known.after.values()) and now - known.looked_at > EVERY:
                known = _Known(self._look(table, known.after), now, known.from_start_at, known.cost)
            self._known[table.box.name] = known
            return known.after

    def forget(self, box_name: str) -> None:
        """The next look that its share allows begins at the start, because something may have come back."""
        with self._lock:
            self._forgotten.add(box_name)

    def _begins_anew(self, table: BoxTable, known: _Known, now: float) -> bool:
        pause = known.cost / SHARE
        return now - known.from_start_at >= (pause if table.box.name in self._forgotten else max(FROM_START, pause))

    def _from_start(self, found: Mapping[int, int], began: float) -> _Known:
        now = self._monotonic()
        return _Known(found, now, now, now - began)

    def _look_shortly(self, table: BoxTable, after: Mapping[int, int]) -> Mapping[int, int] | None:
        """None: it took too long."""
        try:
            with self._opened() as cursor, within(cursor, SHORT):
                return self._look_with(cursor, table, after)
        except StoreUnavailable as error:
            if error.__cause__ is not None and took_too_long(error.__cause__):
                return None
            raise

    def _look(self, table: BoxTable, after: Mapping[int, int]) -> Mapping[int, int]:
        with self._opened() as cursor:
            return self._look_with(cursor, table, after)

    def _look_with(self, cursor: Cursor, table: BoxTable, after: Mapping[int, int]) -> Mapping[int, int]:
        cursor.execute(_first_pending(table), (list(after), list(after.values())), prepare=True)
        found = dict(cursor.fetchall())
        # A bucket without pending rows keeps its place: its next row has a higher id, or a look from the start finds it.
        return {bucket: self._place(found.get(bucket), last) for bucket, last in after.items()}

    def _place(self, first: int | None, last: int) -> int:
        if first is None:
            return last
        return first - 1 if first > self._large else 0


HELD = "unnest(CAST(:buckets AS int[]), CAST(:after AS bigint[])) AS held(bucket, after)"
"""SQL for rows ``held(bucket, after)``; the values are those of ``held``. As parameters, they leave the text of a statement as it
is, and the driver prepares it."""


def held(fronts: Mapping[int, int]) -> dict[str, list[int]]:
    """The parameters of ``HELD``."""
    return {"buckets": list(fronts), "after": list(fronts.values())}


def behind_front(row: str = "") -> str:
    """SQL that tests whether a row of ``held.bucket`` lies behind its front.

    Args:
        row: the row's name and a dot.
    """
    # If the bucket were equal to a value, the order by bucket and id would be that of the primary key, and a plan could walk it.
    return f"({row}bucket, {row}id) > (held.bucket, held.after) AND {row}bucket <= held.bucket"


def _first_pending(table: BoxTable) -> str:
    name = table.name.replace("%", "%%")
    return (
        f"SELECT held.bucket, i.id FROM unnest(%s::int[], %s::bigint[]) AS held(bucket, after) CROSS JOIN LATERAL ("
        f"SELECT t.id FROM {name} AS t WHERE t.status = 0 AND {behind_front('t.')} ORDER BY t.bucket, t.id LIMIT 1) AS i"
    )
