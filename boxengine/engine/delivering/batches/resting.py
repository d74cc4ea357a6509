"""Holds back items whose outcome could not be recorded. Without growing pauses they would be sent endlessly.

Such an item was sent, but its row still says pending, so it must be sent again. Whatever kept the outcome from being
written will probably do so the next time too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.engine.delivering.calls.ordering import Ordering
from boxengine.ports import Clock

ATTEMPTS = 2
"""Failures in a row before an item rests. The first ones may be a restarting server or a deadlock."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
"""Seconds."""
MOST = 10_000
"""Items to remember, at most. Then the oldest is forgotten: another worker may have delivered it, or somebody deleted it."""


class Resting:
    """The resting items of one box in this process. Shared by threads; costs nothing while there are none."""

    def __init__(self, clock: Clock, strict_order: StrictOrder) -> None:
        self._clock = clock
        self._line = Ordering(strict_order).line
        self._lock = threading.Lock()
        self._failures: dict[ItemId, int] = {}
        self._until: dict[ItemId, float] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def unrecorded(self, ids: Iterable[ItemId], *, for_good: bool = False) -> None:
        """These were sent, and their outcome was not recorded.

        Args:
            for_good: their rows accept no outcome at all, so they rest after the first failure.
        """
        now = self._clock.monotonic()
        with self._lock:
            for item_id in ids:
                count = max(self._failures.pop(item_id, 0), ATTEMPTS if for_good else 0) + 1
                if len(self._failures) >= MOST:
                    self._forget(next(iter(self._failures)))
                self._failures[item_id] = count
                if count > ATTEMPTS:
                    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(count - ATTEMPTS - 1, 16))
                    self._until[item_id] = now + pause

    def recorded(self, ids: Iterable[ItemId]) -> None:
        """The outcomes of these items are recorded."""
        with self._lock:
            for item_id in ids:
                self._forget(item_id)

    def _forget(self, item_id: ItemId) -> None:
        self._failures.pop(item_id, None)
        self._until.pop(item_id, None)

    def awake(self, items: Sequence[Item]) -> Sequence[Item]:
        """The items that may be sent: not those at rest, nor later ones of their lines, which must not overtake them."""
        now = self._clock.monotonic()
        with self._lock:
            asleep = {item_id for item_id, until in self._until.items() if until > now}
        lines, awake = set[Any](), list[Item]()
        for item in items:
            line = self._line(item)
            if item.id in asleep or line in lines:
                lines.add(line)
            else:
                awake.append(item)
        return awake
