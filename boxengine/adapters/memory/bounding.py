"""The bounds of boxes in memory, kept by each handle on the rows as a worker keeps its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from threading import RLock
from typing import Protocol

from boxengine.adapters.memory.rows import Begin, Rows
from boxengine.domain.bounds import Bounds, Pace, Range, Seen
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.ports import Clock


class Database(Protocol):
    """What a box's bounds follow from. Every access holds ``lock``."""

    clock: Clock
    lock: RLock
    uncommitted: set[tuple[str, ItemId]]

    def rows(self, box: Box) -> Rows:
        """The box's rows."""


class MemorySight:
    """``Sight`` of one box. Looks take no time, so bounds are used only at a pace that calls this slow."""

    def __init__(self, database: Database, box: Box) -> None:
        self._database = database
        self._box = box

    def last_drawn(self) -> int:
        with self._database.lock:
            return self._database.rows(self._box).drawn

    def writers(self) -> Collection[str]:
        with self._database.lock:
            return {str(row_id) for name, row_id in self._database.uncommitted if name == self._box.name}

    def look(self, ranges: Mapping[int, Range]) -> Seen:
        stops, passes = {Status.PENDING}, passes_delayed(self._box)
        if self._box.strict_order is not StrictOrder.NONE:
            # If people retry such a row, it must go out before its followers.
            stops |= {Status.FAILED, Status.DISCARDED}
        first: dict[int, int] = {}
        with self._database.lock:
            for row in self._database.rows(self._box):
                span = ranges.get(row.bucket)
                if span is None or row.status not in stops or (passes and row.available_at is not None):
                    continue
                if span.after < row.id <= span.up_to:
                    first.setdefault(row.bucket, row.id)
        return Seen(first, 0.0)


def passes_delayed(box: Box) -> bool:
    """Whether bounds pass pending rows that have an ``available_at``. Under strict order they do not."""
    return box.strict_order is StrictOrder.NONE


class MemoryBounds:
    """The bounds of all boxes of one handle."""

    def __init__(self, database: Database, pace: Pace) -> None:
        self._database = database
        self.pace = pace
        self._bounds: dict[str, Bounds] = {}

    def of(self, box: Box) -> Bounds:
        """The box's bounds."""
        with self._database.lock:
            made = Bounds(box.buckets, monotonic=self._database.clock.monotonic, pace=self.pace)
            return self._bounds.setdefault(box.name, made)

    def begin(self, box: Box, buckets: Mapping[int, ItemId | None]) -> Mapping[int, Begin]:
        """Raises positions to the bounds. Ids that are no numbers have none."""
        return {bucket: self._begin(box, bucket, after) for bucket, after in buckets.items()}

    def _begin(self, box: Box, bucket: int, position: ItemId | None) -> Begin:
        bounds = self.of(box)
        if not bounds.after(bucket):
            return Begin(position)
        return Begin(bounds.after(bucket, position), passed=position is None and passes_delayed(box))

    def advance(self, box: Box) -> Collection[int]:
        """See ``Bounding.advance``; for when it is due."""
        return self.of(box).advance(MemorySight(self._database, box))

    def forget(self, box_name: str) -> None:
        """See ``Bounding.read_from_start``."""
        if box_name in self._bounds:
            self._bounds[box_name].forget()
