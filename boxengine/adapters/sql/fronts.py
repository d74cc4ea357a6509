"""Where the pending rows of each bucket begin, for processes that only look.

A delivered row leaves a dead entry in the index until the next vacuum. Behind a busy worker hundreds of thousands of them
stand before the first pending row, and each question about the oldest rows would walk over all of them. So one look finds the
first pending row of each bucket, and the next questions and the next look begin there.

Rows can come back before a front: people retry an item, a transaction commits late. Now and then a look begins at the start
and finds them. Nothing but what people see depends on it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from boxengine.adapters.sql.dialects.base import Cursor
from boxengine.adapters.sql.tables import PENDING_BY_BUCKET, BoxTable
from boxengine.domain.box import Storage

EVERY = 1.0
"""Seconds for which a look is good enough."""
FROM_START = 30.0
"""Seconds between two looks from the start."""
LARGE = 100_000
"""A front at a lower id is not used: there cannot be many entries before it."""


class _Known(NamedTuple):
    after: Mapping[int, int]
    looked_at: float
    from_start_at: float


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
        self._lock = threading.Lock()

    def of(self, table: BoxTable) -> Mapping[int, int]:
        """By bucket, the id after which its pending rows begin."""
        start = dict.fromkeys(table.box.buckets, 0)
        if table.box.storage is not Storage.TABLE or table.pending_first != PENDING_BY_BUCKET:
            return start
        with self._lock:
            now, known = self._monotonic(), self._known.get(table.box.name)
            if known is None or now - known.from_start_at > FROM_START:
                known = _Known(self._look(table, start), now, now)
            elif any(known.after.values()) and now - known.looked_at > EVERY:
                known = _Known(self._look(table, known.after), now, known.from_start_at)
            self._known[table.box.name] = known
            return known.after

    def forget(self, box_name: str) -> None:
        """The next look begins at the start."""
        with self._lock:
            self._known.pop(box_name, None)

    def _look(self, table: BoxTable, after: Mapping[int, int]) -> Mapping[int, int]:
        with self._opened() as cursor:
            cursor.execute(_first_pending(table), (list(after), list(after.values())), prepare=True)
            found = dict(cursor.fetchall())
        # A bucket without pending rows keeps its place: its next row has a higher id, or a look from the start finds it.
        return {bucket: self._place(found.get(bucket), last) for bucket, last in after.items()}

    def _place(self, first: int | None, last: int) -> int:
        if first is None:
            return last
        return first - 1 if first > self._large else 0


def held_from(fronts: Mapping[int, int]) -> str:
    """SQL for rows ``held(bucket, after)``."""
    buckets, after = (", ".join(map(str, part)) for part in (fronts, fronts.values()))
    return f"unnest(ARRAY[{buckets}], ARRAY[{after}]::bigint[]) AS held(bucket, after)"


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
