"""Poll tactics: which throttlers may postpone a poll, in order. The first that objects decides.

=============  =================================================================================================
default        paused box; queue longer than the maximum: skip; rate limit
low-priority   paused box; queue shorter than the minimum: wait, longer than the maximum: skip; oldest job younger
               than the minimum lag: skip; rate limit
aggressive     paused box; queue longer than the maximum: skip
noop           nothing
=============  =================================================================================================

The rate limit applies to polls that nobody asked for and that find nothing new: a backlog is drained at full speed, and
it never postpones a wake-up after a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from boxengine.domain.box import Box
from boxengine.engine.polling.throttlers import (
    GO,
    Decision,
    Moment,
    Pace,
    PausedBox,
    QueueTooLong,
    QueueTooShort,
    QueueTooYoung,
    RateLimited,
    Throttler,
)


class Tactic:
    """An ordered list of throttlers."""

    def __init__(self, throttlers: tuple[Throttler, ...], *, unprompted: float) -> None:
        """Args:
        unprompted: seconds between two looks at a box that nobody asked for.
        """
        self.unprompted = unprompted
        self._throttlers = throttlers

    @property
    def minds_pauses(self) -> bool:
        """Whether a paused box is not polled at all."""
        return any(isinstance(throttler, PausedBox) for throttler in self._throttlers)

    def ask(self, moment: Moment) -> tuple[str, Decision] | None:
        """The first objection, with the name of the throttler that has it; None: nothing speaks against the poll."""
        for throttler in self._throttlers:
            decision = throttler(moment)
            if decision is not GO:
                return throttler.name, decision
        return None

    def found_new_rows(self, box: Box) -> None:
        """A poll found new rows, so it does not count against the rate limit."""
        for throttler in self._throttlers:
            if isinstance(throttler, RateLimited):
                throttler.refund(box)


def _default(pace: Pace) -> Tactic:
    return Tactic((PausedBox(), QueueTooLong(pace), RateLimited(pace)), unprompted=pace.rate_interval / pace.rate_limit)


def _low_priority(pace: Pace) -> Tactic:
    throttlers = (PausedBox(), QueueTooShort(pace), QueueTooLong(pace), QueueTooYoung(pace), RateLimited(pace))
    return Tactic(throttlers, unprompted=pace.rate_interval / pace.rate_limit)


def _aggressive(pace: Pace) -> Tactic:
    return Tactic((PausedBox(), QueueTooLong(pace)), unprompted=pace.delay)


def _noop(_pace: Pace) -> Tactic:
    return Tactic((), unprompted=0.01)


TACTICS: Mapping[str, Callable[[Pace], Tactic]] = {
    "default": _default,
    "low-priority": _low_priority,
    "aggressive": _aggressive,
    "noop": _noop,
}
