"""Poll tactics: what may put a poll off, in order. The first throttler that objects decides.

=============  =================================================================================================
default        paused box; queue longer than the maximum: skip; rate limit
low-priority   paused box; queue shorter than the minimum: wait, longer than the maximum: skip; oldest job younger
               than the minimum lag: skip; rate limit
aggressive     paused box; queue longer than the maximum: skip
noop           nothing
=============  =================================================================================================

The rate limit is for polls that nobody asked for and that find nothing new: a backlog is drained at full speed, and a
wake-up after a commit is never put off by it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Protocol

from boxengine.domain.box import Box
from boxengine.ports import Clock, JobQueue, QueueState


class Answer(Enum):
    """What a throttler says; the values are those of the metric's ``status`` label."""

    NOOP = "noop"
    THROTTLE = "throttle"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether to poll now, and if not, when to ask again (seconds)."""

    answer: Answer
    retry_in: float = 0.0


GO = Decision(Answer.NOOP)


SHORTEST_DELAY = 0.01
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The settings of the throttlers; times in seconds, queue sizes in jobs."""

    rate_limit: int = 60
    rate_interval: float = 60.0
    min_queue_size: int = 10
    max_queue_size: int = 100
    min_queue_timelag: float = 5.0
    queue_delay: float = 0.1

    @property
    def delay(self) -> float:
        """Seconds until a poll that was put off is tried again. Zero would keep a core and Redis busy."""
        return max(SHORTEST_DELAY, self.queue_delay)


@dataclass(frozen=True)
class Moment:
    """What throttlers know when they are asked; the queue is looked at only if one of them wants to know."""

    box: Box
    prompted: bool
    now: float
    """Monotonic seconds."""
    unix_now: float
    paused: Callable[[Box], bool]
    measure: Callable[[Box], QueueState]

    @cached_property
    def queue(self) -> QueueState:
        return self.measure(self.box)


class Throttler(Protocol):
    """One reason for which a poll may be put off."""

    name: str

    def __call__(self, moment: Moment) -> Decision: ...


class PausedBox:
    """People have paused the box."""

    name = "paused_box"
    recheck = 1.0

    def __call__(self, moment: Moment) -> Decision:
        return Decision(Answer.SKIP, self.recheck) if moment.paused(moment.box) else GO


class QueueTooLong:
    """There is work enough in the queue."""

    name = "redis_queue_size"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def __call__(self, moment: Moment) -> Decision:
        if moment.queue.length > self._pace.max_queue_size:
            return Decision(Answer.SKIP, self._pace.delay)
        return GO


class QueueTooShort:
    """Low priority: a short queue is left to fill up a little, so that jobs get larger. Waits once, then lets pass."""

    name = "redis_queue_min_size"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._waiting: dict[str, float] = {}

    def __call__(self, moment: Moment) -> Decision:
        name = moment.box.name
        if moment.queue.length >= self._pace.min_queue_size:
            self._waiting.pop(name, None)
            return GO
        since = self._waiting.setdefault(name, moment.now)
        if moment.now - since >= self._pace.delay:
            del self._waiting[name]
            return GO
        return Decision(Answer.THROTTLE, self._pace.delay)


class QueueTooYoung:
    """Low priority: as long as the oldest job is young, the processors keep up."""

    name = "redis_queue_time_lag"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def __call__(self, moment: Moment) -> Decision:
        pushed_at = moment.queue.oldest_pushed_at
        if pushed_at is not None and moment.unix_now - pushed_at < self._pace.min_queue_timelag:
            return Decision(Answer.SKIP, self._pace.delay)
        return GO


class RateLimited:
    """At most ``rate_limit`` polls per ``rate_interval`` and box that nobody asked for."""

    name = "rate_limited"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._polls: dict[str, deque[float]] = {}
        self._lock = threading.Lock()

    def __call__(self, moment: Moment) -> Decision:
        if moment.prompted:
            return GO
        with self._lock:
            polls = self._polls.setdefault(moment.box.name, deque())
            while polls and moment.now - polls[0] >= self._pace.rate_interval:
                polls.popleft()
            if len(polls) >= self._pace.rate_limit:
                return Decision(Answer.THROTTLE, polls[0] + self._pace.rate_interval - moment.now)
            polls.append(moment.now)
            return GO

    def refund(self, box: Box) -> None:
        """The poll found new rows: it does not count."""
        with self._lock:
            polls = self._polls.get(box.name)
            if polls:
                polls.pop()


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
        """Whether a paused box is not even to be looked at."""
        return any(isinstance(throttler, PausedBox) for throttler in self._throttlers)

    def ask(self, moment: Moment, *, told: Callable[[str, Decision], None]) -> Decision:
        """The first objection, or GO; ``told`` hears each throttler's name and decision."""
        for throttler in self._throttlers:
            decision = throttler(moment)
            told(throttler.name, decision)
            if decision.answer is not Answer.NOOP:
                return decision
        return GO

    def found_new_rows(self, box: Box) -> None:
        """A poll was worth it."""
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


def queue_state(queue: JobQueue, box: Box, clock: Clock, observe: Callable[[int, float], None]) -> QueueState:
    """Measures the box's queue and tells ``observe`` its length and lag in seconds."""
    state = queue.state(box)
    lag = 0.0 if state.oldest_pushed_at is None else max(0.0, clock.now().timestamp() - state.oldest_pushed_at)
    observe(state.length, lag)
    return state
