"""Notes how far the buckets of all boxes are done, so that looks and claims need not walk over what was delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from boxengine.domain.bounds import PACE
from boxengine.domain.box import Box
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.rounds import Rounds
from boxengine.errors import BoxError, Unavailable
from boxengine.ports import Bounding, Clock

EVERY = timedelta(seconds=PACE.every)


class BoundsWatch:
    """Advances the bounds of all boxes in each turn. Only one thread may take its turns."""

    def __init__(
        self,
        boxes: Sequence[Box],
        *,
        store: Bounding,
        ping: Callable[[], None],
        schedule: Schedule,
        outages: Outages,
        clock: Clock,
    ) -> None:
        """Args:
        ping: raises ``Unavailable`` if the database does not answer.
        """
        self._rounds = Rounds(boxes, clock=clock)
        self._store = store
        self._ping = ping
        self._schedule = schedule
        self._outages = outages

    def turn(self) -> timedelta:
        """Advances what is due to be advanced, and asks for looks at buckets in which rows have come back.

        Raises:
            Unavailable: the database does not answer. After an outage all boxes are due, and it would be asked for each.
        """
        for box in self._rounds.turn():
            what = f"moving the bounds of {box.name}"
            try:
                back = self._store.advance(box)
            except BoxError as error:  # one box without a table must not stop the others
                if isinstance(error, Unavailable):
                    self._ping()
                self._outages.failed(what, error)
                continue
            self._outages.worked(what)
            if back:
                self._schedule.wake(box.name, back)
        return EVERY
