"""Deliberate bugs in the bounds behind which looks and claims begin; see ``mutants``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from boxengine.adapters.memory.bounding import MemoryBounds, MemorySight
from boxengine.adapters.memory.rows import Begin
from boxengine.domain.bounds import Bounds, Range, Seen, Sight
from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from tests.simulation.mutation import Mutant, Surgery, breaks
from tests.simulation.promises import Promise


@breaks(Promise.ENDS, only=())
def bound_adopted_at_once(patch: Surgery) -> None:
    """Nobody waits for the writers that have drawn a lower id and commit it later."""
    patch.setattr(MemorySight, "writers", lambda _self: ())


@breaks(Promise.ENDS, only=())
def writers_listed_before_the_id_is_read(patch: Surgery) -> None:
    """A writer that draws its id between the two is not on the list."""
    last = MemorySight.last_drawn
    patch.setattr(MemorySight, "last_drawn", lambda self: last(self) + 2)


@breaks(Promise.ENDS, only=())
def bound_past_a_pending_row(patch: Surgery) -> None:
    """What the look finds is not heeded: an item that backs off is left behind."""
    patch.setattr(MemorySight, "look", lambda _self, _ranges: Seen({}, 0.0))


@breaks(Promise.ENDS, only=())
def rows_that_were_delayed_left_behind(patch: Surgery) -> None:
    """A bound passes an item that waits for its time, and nobody reads it once it is due."""
    begin = MemoryBounds.begin

    def without_passed(self: MemoryBounds, box: Box, buckets: Mapping[int, ItemId | None]) -> Mapping[int, Begin]:
        return {bucket: each._replace(passed=False) for bucket, each in begin(self, box, buckets).items()}

    patch.setattr(MemoryBounds, "begin", without_passed)


@breaks(Promise.ORDER, only=("item refused", "operator"))
def bound_past_a_failed_row_under_strict_order(patch: Surgery) -> None:
    """A failed item that somebody retries is overtaken by the followers that waited for it."""

    def look(self: Any, ranges: Mapping[int, Range]) -> Seen:
        first: dict[int, int] = {}
        for row in self._database.rows(self._box):
            span = ranges.get(row.bucket, Range(0, 0))
            if row.status == Status.PENDING and span.after < row.id <= span.up_to:
                first.setdefault(row.bucket, row.id)
        return Seen(first, 0.0)

    patch.setattr(MemorySight, "look", look)


@breaks(Promise.ENDS, only=("item refused", "operator"))
def start_never_looked_at_again(patch: Surgery) -> None:
    """An item that somebody retries stays behind its bound."""

    def nothing(_self: Bounds, _sight: Sight) -> Collection[int]:
        return ()

    patch.setattr(Bounds, "_look_from_start", nothing)


BOUNDS_MUTANTS: tuple[Mutant, ...] = (
    bound_adopted_at_once,
    writers_listed_before_the_id_is_read,
    bound_past_a_pending_row,
    rows_that_were_delayed_left_behind,
    bound_past_a_failed_row_under_strict_order,
    start_never_looked_at_again,
)
