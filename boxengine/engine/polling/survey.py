"""Finds with one query which of many boxes have any pending row, so that the others need no check of their own.

A check of a box costs a query and two round trips to the coordinator. A worker with hundreds of boxes, nearly all of them
idle, would do nothing else, or would have to check each box too rarely. Boxes with a log are left out: each would take a query of
its own in each survey, and while nothing happens their checks are much rarer than surveys.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from boxengine.domain.box import Box, Storage
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import AT_ONCE, Schedule
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.errors import Unavailable
from boxengine.ports import Store

MANY = 10
"""From this number of boxes on, a survey is cheaper than their checks."""
EVERY = timedelta(seconds=TIMING.survey)


def covered(boxes: Sequence[Box]) -> list[Box]:
    """The boxes among these that one query for many can tell of."""
    return [box for box in boxes if box.storage is Storage.TABLE]


class Survey:
    """Surveys the boxes. Only one thread may take its turns."""

    def __init__(
        self, boxes: Sequence[Box], *, store: Store, schedule: Schedule, pauses: PauseWatch, outages: Outages
    ) -> None:
        self._boxes = covered(boxes)
        self._names = frozenset(box.name for box in self._boxes)
        self._store = store
        self._schedule = schedule
        self._pauses = pauses
        self._outages = outages
        self._pending = self._names
        """Boxes with pending rows at the last survey. Before the first one, and while surveys fail although the database answers,
        all boxes: each is then checked at its own pace."""
        self._seen = frozenset[str]()
        """The same, but none before the first survey, and while surveys fail: at the next one, those with rows come first."""

    def quiet(self, box: Box) -> bool:
        """Whether the box had no pending row at the last survey. If it gets one, a later survey asks for a check."""
        return box.name in self._names and box.name not in self._pending

    def turn(self) -> timedelta:
        """Surveys all boxes that are not paused, and asks for a check of those whose first pending rows it has just found."""
        before = self._seen
        try:
            pending = self._store.pending(self._pauses.running(self._boxes))
        except Exception as error:  # one box without a table must not stop the survey of the others
            self._seen = frozenset()
            if not self._is_away(error):
                for name in sorted(self._names - self._pending):
                    self._schedule.check(name, within=0.0)
                self._pending = self._names
            return timedelta(seconds=self._outages.failed("the survey of all boxes", error))
        self._outages.worked("the survey of all boxes")
        # Boxes that were pending before are checked at their own pace, which is quick while rows are due.
        self._pending = self._seen = pending
        for name in sorted(pending - before):
            self._schedule.check(name, within=AT_ONCE)
        return EVERY

    def _is_away(self, error: Exception) -> bool:
        """Whether nobody would answer a check either. When somebody does, the checks of all boxes would be in the way of the few
        that have rows."""
        try:
            if isinstance(error, Unavailable):
                self._store.ping()
        except Unavailable:
            return True
        return False
