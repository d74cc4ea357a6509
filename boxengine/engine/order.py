"""Notices items that were delivered after a later one of their key: the sign that ids do not follow the order of commits.

Nothing can mend this from here; the application must write items of one key one after the other. What can be done is to
say so, at a price of a fifth of a microsecond per item.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice, repeat
from operator import gt

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item
from boxengine.errors import StoreUnavailable
from boxengine.ports import ItemFilter, ItemRow, ItemsStore, Observer

KEYS = 10_000
"""Remembered of one box at least; writers that overtake each other do so within moments."""


class OrderWatch:
    """Remembers, of the keys delivered last in this process, the highest id. Shared by the threads of one box."""

    def __init__(self, box: Box, *, items: ItemsStore, observer: Observer, keys: int = KEYS) -> None:
        """Args:
        items: asked about items that came late, which is seldom.
        keys: remembered at least; up to twice as many are.
        """
        self._box = box
        self._strict = box.strict_order is not StrictOrder.NONE
        self._items = items
        self._observer = observer
        self._keys = keys
        self._last: dict[str, int] = {}
        self._lock = threading.Lock()

    def delivered(self, items: Sequence[Item], ids: Sequence[int]) -> None:
        """Takes note of what a batch has delivered for good, and tells the observer of items that came late.

        Args:
            items: of the batch, in id order.
            ids: of those that were delivered.
        """
        if len(ids) < len(items):
            chosen = set(ids)
            items = [item for item in items if item.id in chosen]
        late = self._note(items)
        if late:
            late = self._promised(late)
        if late:
            self._observer.order_violated(self._box, items=late)

    def _note(self, items: Sequence[Item]) -> list[Item]:
        """The items of which a later one is remembered; and remembers all."""
        keys, ids, late = [item.event_key for item in items], [item.id for item in items], list[Item]()
        with self._lock:
            last = self._last
            # Nearly always none is, and then no item is looked at in Python.
            if any(map(gt, map(last.get, keys, repeat(0)), ids)):
                late = [item for item in items if last.get(item.event_key, 0) > item.id]
                passed = {item.event_key: last[item.event_key] for item in late}
                ids = [max(number, passed.get(key, 0)) for key, number in zip(keys, ids, strict=True)]
            last.update(zip(keys, ids, strict=True))
            if len(last) > 2 * self._keys:
                for key in list(islice(last, len(last) - self._keys)):
                    del last[key]
        return late

    def _promised(self, late: Sequence[Item]) -> list[Item]:
        """Those that nothing excuses: without strict order an item that failed or was delayed lets later ones pass."""
        if self._strict:
            return list(late)
        untried = {item.id: item for item in late if item.processed_at is None}
        if not untried:
            return []
        try:
            which = ItemFilter(ids=tuple(untried))
            rows = self._items.page(self._box, which, after=0, limit=len(untried))
        except StoreUnavailable:
            return []  # what cannot be judged is not told; an audit finds it
        for row in rows:
            if may_wait(row):
                del untried[row.id]
        return list(untried.values())


def may_wait(row: ItemRow) -> bool:
    """Whether later items of its key may go first where the order is not strict."""
    return row.errors_count > 0 or row.error_log is not None or row.available_at is not None
