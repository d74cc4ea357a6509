"""One look for many boxes: which of them have any pending row, so that the others need no check of their own.

A check of a box costs a query and two round trips to the coordinator. A worker with hundreds of boxes, nearly all of them
idle, would do nothing else, or would have to check each box too seldom.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.ports import Store

MANY = 10
"""From this number of boxes on, a survey is cheaper than their checks."""
EVERY = timedelta(seconds=TIMING.survey)


class Survey:
    """One turn at a time."""

    def __init__(
        self, boxes: Sequence[Box], *, store: Store, schedule: Schedule, pauses: PauseWatch, outages: Outages
    ) -> None:
        self._boxes = boxes
        self._store = store
        self._schedule = schedule
        self._pauses = pauses
        self._outages = outages
        self._pending = frozenset(box.name for box in boxes)
        """As last seen. All of them before the first look and while looks fail: each is then checked at its own pace."""

    def quiet(self, box: Box) -> bool:
        """Whether the box had no pending row at the last look. If it gets one, a later look has the box checked."""
        return box.name not in self._pending

    def turn(self) -> timedelta:
        """Looks at all boxes that are not paused, and has those checked that have pending rows since this look."""
        before = self._pending
        try:
            pending = self._store.pending(self._pauses.running(self._boxes))
        except Exception as error:  # one box without a table must not keep the others from being looked at
            self._pending = frozenset(box.name for box in self._boxes)
            for name in sorted(self._pending - before):
                self._schedule.check(name, within=0.0)
            return timedelta(seconds=self._outages.failed("looking at all boxes", error))
        self._outages.worked("looking at all boxes")
        # The other pending ones are checked at their own pace, which is quick while rows are due.
        self._pending = pending
        for name in sorted(pending - before):
            self._schedule.check(name, within=0.0)
        return EVERY
