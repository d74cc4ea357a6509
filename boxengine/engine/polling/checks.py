"""A check: which partitions of a box have rows that are due, in one cheap query."""

from __future__ import annotations

from collections.abc import Callable

from boxengine.domain.box import Box
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.schedule import AT_ONCE, Schedule
from boxengine.engine.polling.tactics import Tactic
from boxengine.engine.timing import TIMING, Timing
from boxengine.ports import Clock, JobQueue, Store, Wakeups


def never_quiet(_box: Box) -> bool:
    """The ``quiet`` of boxes that no survey covers."""
    return False


class Checks:
    """Checks boxes, and asks for looks at partitions with due rows. Shared by threads."""

    def __init__(
        self,
        schedule: Schedule,
        *,
        store: Store,
        queue: JobQueue,
        pauses: PauseWatch,
        wakeups: Wakeups | None,
        tactic: Tactic,
        clock: Clock,
        quiet: Callable[[Box], bool] = never_quiet,
        timing: Timing = TIMING,
    ) -> None:
        """Args:
        quiet: whether a survey has found no pending row in the box, and will notice when there is one.
        """
        self._schedule = schedule
        self._store = store
        self._queue = queue
        self._pauses = pauses
        self._wakeups = wakeups
        self._tactic = tactic
        self._clock = clock
        self._quiet = quiet
        self._timing = timing
        self._idle: dict[str, float] = {}
        """By box, the seconds between its checks while they find nothing."""

    def check(self, box: Box) -> float:
        """Asks for looks at the partitions with due rows; returns the seconds until the next check."""
        if self._tactic.minds_pauses and self._pauses.paused(box):
            return self._tactic.unprompted
        began = self._clock.monotonic()
        # Ask for the free buckets first: a bucket free now whose rows are due afterwards really waits, so no job is wasted.
        free = self._queue.unattended(box, box.buckets)
        outlook = self._store.outlook(box, free)
        pause = self._pause(box, found=bool(outlook.due) or len(free) < len(box.buckets))
        if outlook.due:
            # Prompted: the rate limit restrains polls that find nothing, and these will find something.
            self._schedule.wake(box.name, outlook.due, within=AT_ONCE)
        if outlook.next_in is None:
            return pause
        # Rows that come due in close succession are read together, so that polls stay a small part of the work.
        soonest = max(self._timing.shortest_look, 10 * (self._clock.monotonic() - began))
        return min(pause, max(soonest, outlook.next_in.total_seconds()))

    def _pause(self, box: Box, *, found: bool) -> float:
        """Seconds until the next check if nothing is known to come due before."""
        timing, shortest = self._timing, self._tactic.unprompted
        if found:
            self._idle.pop(box.name, None)
            return min(shortest, timing.look_again)
        if self._quiet(box):
            return timing.surveyed
        if self._wakeups is None or not self._wakeups.reliable:
            return shortest
        # Wake-ups announce most rows. Checks find the rest, and become rarer while they find nothing.
        idle = max(shortest, min(timing.longest_idle, self._idle.get(box.name, shortest) * 1.5))
        self._idle[box.name] = idle
        return idle
