"""Items that a middleware keeps back. Each is reported once, however often it comes again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice

from boxengine.domain.box import Box
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.ports import Observer, events

REMEMBERED = 10_000
"""How many reported items are remembered. Beyond that, the oldest may be reported again."""


class KeptBackItems:
    """The kept-back items of one box that were reported. Shared by threads."""

    def __init__(self, box: Box, *, observer: Observer) -> None:
        self._box = box
        self._observer = observer
        self._told: dict[ItemId, None] = {}
        self._lock = threading.Lock()

    def tell(self, items: Sequence[Item]) -> None:
        """Tells the observer of the items that it does not know of yet."""
        with self._lock:
            new = [item for item in items if item.id not in self._told]
            self._told.update(dict.fromkeys(item.id for item in new))
            for oldest in list(islice(self._told, max(0, len(self._told) - REMEMBERED))):
                del self._told[oldest]
        if new:
            self._observer.see(events.KeptBack(self._box, items=new))
