"""When sending must stop: the leases have run out, the batch's time is over, or somebody has paused the box."""

from __future__ import annotations

from collections.abc import Callable

from boxengine.domain.box import Box
from boxengine.engine.delivering.work import Errand


class Deadline:
    """The deadline of one batch. Senders ask it between items, waves or halves that no transport has yet.

    They never ask it between two transports of one item: left pending, the item would reach the first one twice.
    """

    def __init__(
        self,
        errand: Errand,
        box: Box,
        *,
        flush_after: float,
        monotonic: Callable[[], float],
        paused: Callable[[Box], bool],
    ) -> None:
        """Starts the time in which to send. Slow payload builders have had theirs before.

        Args:
            flush_after: seconds after which what was sent is to be recorded.
        """
        self._term = errand.term
        self._box = box
        self._monotonic = monotonic
        self._paused = paused
        self._until = min(errand.until, monotonic() + flush_after)
        self._passed = False

    def passed(self, *, begun: bool) -> bool:
        """Whether the rest must stay pending. Once true, it stays true; otherwise a later item could overtake.

        Args:
            begun: whether the batch has an outcome to record.
        """
        if not self._passed:
            now = self._monotonic()
            # The first item goes out even when its time is over, or a batch with slow payload builders would never send any.
            self._passed = now >= self._term.valid_until or (begun and now >= self._until) or self._paused(self._box)
        return self._passed
