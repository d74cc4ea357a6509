"""Items whose outcome could not be recorded: they are left alone for growing pauses, or they would be sent without end.

Such an item was sent, and its row says that it was not. So it must be sent again, for nothing else is known of it; but
what kept its outcome from being written is likely to do so the next time too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.ports import Clock

ATTEMPTS = 2
"""Times in a row that are forgiven: a server that restarts, a deadlock."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
"""Seconds."""
MOST = 10_000
"""Items that are remembered; who comes later than that is not."""


class Resting:
    """Knows them for one box and one process. Shared by threads; free while there are none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[ItemId, int] = {}
        self._until: dict[ItemId, float] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def unrecorded(self, ids: Iterable[ItemId], *, for_good: bool = False) -> None:
        """These were sent and not recorded.

        Args:
            for_good: their rows take no outcome, so that nothing is forgiven.
        """
        now = self._clock.monotonic()
        with self._lock:
            for item_id in ids:
                if item_id in self._failures or len(self._failures) < MOST:
                    count = max(self._failures.get(item_id, 0), ATTEMPTS if for_good else 0) + 1
                    self._failures[item_id] = count
                    if count > ATTEMPTS:
                        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(count - ATTEMPTS - 1, 16))
                        self._until[item_id] = now + pause

    def recorded(self, ids: Iterable[ItemId]) -> None:
        """These have their outcome."""
        with self._lock:
            for item_id in ids:
                self._failures.pop(item_id, None)
                self._until.pop(item_id, None)

    def awake(self, items: Sequence[Item]) -> Sequence[Item]:
        """Those that may be sent: not the ones at rest, nor later ones of their keys, which must not overtake them."""
        now = self._clock.monotonic()
        with self._lock:
            asleep = {item_id for item_id, until in self._until.items() if until > now}
        keys: set[str] = set()
        awake = []
        for item in items:
            if item.id in asleep or item.event_key in keys:
                keys.add(item.event_key)
            else:
                awake.append(item)
        return awake
