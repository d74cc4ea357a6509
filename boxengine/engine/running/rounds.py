"""Turns over many boxes, none of which lasts too long.

Health takes a turn that reports nothing for minutes for a hanging one, and where a server has vanished, each question to it
waits in vain for seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Generic, TypeVar

from boxengine.ports import Clock

T = TypeVar("T")

TURN_LIMIT = timedelta(seconds=30)
"""A turn of short questions begins with no further box after this time."""
SOON = timedelta(seconds=1)
"""The pause before the turn that goes on where one was cut short."""


class Rounds(Generic[T]):
    """Boxes that a loop visits one after the other. One thread runs its turns."""

    def __init__(self, boxes: Sequence[T], *, clock: Clock) -> None:
        self._boxes = boxes
        self._clock = clock
        self.cut_short = False
        """Whether the last turn ended because its time was over."""

    def turn(self, *, until: float | None = None) -> Iterator[T]:
        """The boxes, up to the one at which the time is over. The next turn begins after that one.

        Args:
            until: monotonic time at which it is over; None: ``TURN_LIMIT`` from now.
        """
        self.cut_short = False
        if until is None:
            until = self._clock.monotonic() + TURN_LIMIT.total_seconds()
        for number, box in enumerate(self._boxes, 1):
            yield box
            if self._clock.monotonic() >= until:
                self._boxes = [*self._boxes[number:], *self._boxes[:number]]
                self.cut_short = True
                return
