"""Notes how far the buckets of all boxes are done, so that looks and claims need not walk over what was delivered."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from boxengine.domain.bounds import PACE
from boxengine.domain.box import Box
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.errors import BoxError
from boxengine.ports import Bounding

EVERY = timedelta(seconds=PACE.every)


class BoundsWatch:
    """Advances the bounds of all boxes in each turn. Only one thread may take its turns."""

    def __init__(self, boxes: Sequence[Box], *, store: Bounding, schedule: Schedule, outages: Outages) -> None:
        self._boxes = boxes
        self._store = store
        self._schedule = schedule
        self._outages = outages

    def turn(self) -> timedelta:
        """Advances what is due to be advanced, and asks for looks at buckets in which rows have come back."""
        for box in self._boxes:
            what = f"moving the bounds of {box.name}"
            try:
                back = self._store.advance(box)
            except BoxError as error:  # one box without a table must not stop the others
                self._outages.failed(what, error)
                continue
            self._outages.worked(what)
            if back:
                self._schedule.wake(box.name, back)
        return EVERY
