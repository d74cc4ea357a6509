"""Rows for actions, found the way pages find them: by index, or window by window, never in one scan of a large table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from boxengine.domain.box import Box
from boxengine.ports import ItemFilter, ItemRow, ItemsStore, Replay
from boxengine.ports.people.inspection import Inspector, Towards

LOOK_SECONDS = 0.5
"""How long one search may keep its transaction open."""


def searched_for(seconds: float) -> Callable[[], bool]:
    """A function that tells whether this much time has passed since the call."""
    until = monotonic() + seconds
    return lambda: monotonic() > until


class WindowedItems:
    """An ``ItemsStore`` that searches for ids through an ``Inspector``."""

    def __init__(self, items: ItemsStore, inspector: Inspector, *, go_on: Callable[[], None]) -> None:
        """Args:
        go_on: called after each part of a search, however few ids it found; what it raises ends the search.
        """
        self._items = items
        self._inspector = inspector
        self._go_on = go_on

    def ids(self, box: Box, which: ItemFilter, *, after: int | None, limit: int) -> list[int]:
        start: int | None = after or 0
        found: list[int] = []
        while start is not None and len(found) < limit:
            look = self._inspector.find(
                box,
                which,
                start=start,
                towards=Towards.NEWER,
                limit=limit - len(found),
                enough=searched_for(LOOK_SECONDS),
            )
            found += sorted(row.id for row in look.rows)
            start = look.searched_to
            self._go_on()
        return found

    def count(self, box: Box, which: ItemFilter) -> int:
        return self._items.count(box, which)

    def last_id(self, box: Box) -> int | None:
        return self._items.last_id(box)

    def page(self, box: Box, which: ItemFilter, *, after: int | None, limit: int) -> list[ItemRow]:
        return self._items.page(box, which, after=after, limit=limit)

    def get(self, box: Box, item_id: int) -> ItemRow | None:
        return self._items.get(box, item_id)

    def retry(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._items.retry(box, which, ids)

    def restart(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._items.restart(box, which, ids)

    def discard(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._items.discard(box, which, ids)

    def delete(self, box: Box, which: ItemFilter, ids: Sequence[int]) -> frozenset[int]:
        return self._items.delete(box, which, ids)

    def replay(self, box: Box, which: ItemFilter, ids: Sequence[int], how: Replay) -> int:
        return self._items.replay(box, which, ids, how)
