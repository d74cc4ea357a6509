"""Caches which boxes are paused; asks the coordinator every two seconds at most."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from boxengine.domain.box import Box
from boxengine.engine.timing import TIMING, Timing
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, Pauses


class PauseWatch:
    """The paused boxes, for all loops of a worker. Shared by threads; the first that finds the last answer too old asks again."""

    def __init__(
        self,
        pauses: Pauses,
        boxes: Sequence[Box],
        *,
        clock: Clock,
        auto_disabled: bool = False,
        resumed: Callable[[str], object] = lambda _box_name: None,
        measured: Callable[[float], object] = lambda _seconds: None,
        timing: Timing = TIMING,
    ) -> None:
        """Args:
        auto_disabled: a box counts as paused until somebody resumes it.
        resumed: called with the name of each box that is no longer paused.
        measured: called with the seconds that each answer took.
        """
        self._pauses = pauses
        self._boxes = boxes
        self._clock = clock
        self._otherwise = not auto_disabled
        self._resumed = resumed
        self._measured = measured
        self._timing = timing
        self._stopped = frozenset(box.name for box in boxes)
        """Before the first answer all: a guess could send items of a paused box."""
        self._asked = False
        """Whether there was a question before: others have acted on its answer, or on there being none."""
        self._heard = False
        self._fresh_until = float("-inf")
        self._lock = threading.Lock()

    def paused(self, box: Box) -> bool:
        """Whether no item of the box may be sent.

        If the coordinator does not answer, its last answer holds; before the first one, all boxes count as paused.
        """
        if self._clock.monotonic() >= self._fresh_until:  # looked at here, too: it is asked before each single item
            self._refresh()
        return box.name in self._stopped

    def running(self, boxes: Sequence[Box]) -> Sequence[Box]:
        """The boxes among these that are not known to be paused. Before the first answer these are all.

        The caller asks the coordinator for something next, and finds out then that it does not answer.
        """
        self._refresh()
        stopped = self._stopped if self._heard else frozenset[str]()
        return [box for box in boxes if box.name not in stopped] if stopped else boxes

    def _refresh(self) -> None:
        if self._clock.monotonic() < self._fresh_until:
            return
        # Until the first answer every thread waits: one that guessed could send items of a paused box.
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
        """Asks the coordinator; returns the boxes that are no longer paused."""
        asked_at = self._clock.monotonic()
        try:
            enabled = self._pauses.polling_enabled(self._boxes)
        except QueueUnavailable:
            self._fresh_until = self._clock.monotonic() + self._timing.pause_asked_again
            self._asked = True
            return frozenset()
        answered_at = self._clock.monotonic()
        self._measured(answered_at - asked_at)
        before = self._stopped
        self._stopped = frozenset(box.name for box in self._boxes if not enabled.get(box.name, self._otherwise))
        # Set last: a thread that does not wait must not use the old answer as a fresh one.
        # If an answer took as long as it is trusted, the coordinator would be asked before every single item.
        self._fresh_until = max(asked_at + self._timing.pause_heard, answered_at + self._timing.pause_asked_again)
        asked, self._asked, self._heard = self._asked, True, True
        return before - self._stopped if asked else frozenset()
