"""Which boxes are paused, as last heard; the coordinator is asked every two seconds at most."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from boxengine.domain.box import Box
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Pauses

REFRESH = 2.0
"""Seconds. A pause is promised to hold everywhere within 10, and a batch that is under way may last a second longer."""
ASK_AGAIN = 1.0
"""Seconds until the next question when the coordinator did not answer, or was slow to."""


class PauseWatch:
    """What all loops of a worker know of pauses. Shared by threads; whoever looks first after ``REFRESH`` asks."""

    def __init__(
        self,
        pauses: Pauses,
        boxes: Sequence[Box],
        *,
        clock: Clock,
        auto_disabled: bool = False,
        resumed: Callable[[str], object] = lambda _box_name: None,
        measured: Callable[[float], object] = lambda _seconds: None,
    ) -> None:
        """Args:
        auto_disabled: boxes that nobody resumed are paused.
        resumed: told the name of each box that is paused no longer.
        measured: told how many seconds each answer took.
        """
        self._pauses = pauses
        self._boxes = boxes
        self._clock = clock
        self._otherwise = not auto_disabled
        self._resumed = resumed
        self._measured = measured
        self._stopped = frozenset(box.name for box in boxes) if auto_disabled else frozenset[str]()
        self._heard = False
        self._fresh_until = float("-inf")
        self._lock = threading.Lock()

    def paused(self, box: Box) -> bool:
        """Whether nothing of the box may be handed out. If the coordinator does not answer, what was last heard holds."""
        self._refresh()
        return box.name in self._stopped

    def running(self, boxes: Sequence[Box]) -> Sequence[Box]:
        """Those of the boxes that are not paused."""
        self._refresh()
        stopped = self._stopped
        return [box for box in boxes if box.name not in stopped] if stopped else boxes

    def _refresh(self) -> None:
        if self._clock.monotonic() < self._fresh_until:
            return
        # Before the first answer nobody may guess: a thread that did not wait could send items of a paused box.
        if not self._lock.acquire(blocking=not self._heard):
            return
        try:
            if self._clock.monotonic() < self._fresh_until:
                return
            resumed = self._ask()
        finally:
            self._lock.release()
        for name in sorted(resumed):
            self._resumed(name)

    def _ask(self) -> frozenset[str]:
        """Asks the coordinator; returns the boxes that are paused no longer."""
        asked_at = self._clock.monotonic()
        try:
            enabled = self._pauses.polling_enabled(self._boxes)
        except QueueUnavailable:
            self._fresh_until = self._clock.monotonic() + ASK_AGAIN
            return frozenset()
        answered_at = self._clock.monotonic()
        self._measured(answered_at - asked_at)
        before = self._stopped
        self._stopped = frozenset(box.name for box in self._boxes if not enabled.get(box.name, self._otherwise))
        # Last, or a thread that does not wait would take what was known before for fresh.
        # An answer that took as long as it holds would be asked for before every single item.
        self._fresh_until = max(asked_at + REFRESH, answered_at + ASK_AGAIN)
        heard, self._heard = self._heard, True
        return before - self._stopped if heard else frozenset()
