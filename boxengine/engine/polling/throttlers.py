"""Throttlers: reasons to postpone a poll. Tactics are made of them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import ClassVar

from boxengine.domain.box import Box
from boxengine.ports import QueueState


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
        """Seconds until a postponed poll is tried again. Zero would keep a core and Redis busy."""
        return max(SHORTEST_DELAY, self.queue_delay)


@dataclass(frozen=True)
class Moment:
    """What throttlers decide by; the queue is measured only if one of them asks for it."""

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


class Throttler(ABC):
    """One reason to postpone a poll."""

    name: ClassVar[str]
    """The value of the metric's label ``throttler``."""

    @abstractmethod
    def __call__(self, moment: Moment) -> Decision:
        """``GO``, or why not and when to ask again."""


class PausedBox(Throttler):
    """The box has been paused."""

    name = "paused_box"
    recheck = 1.0

    def __call__(self, moment: Moment) -> Decision:
        return Decision(Answer.SKIP, self.recheck) if moment.paused(moment.box) else GO


class QueueTooLong(Throttler):
    """The queue has work enough."""

    name = "redis_queue_size"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def __call__(self, moment: Moment) -> Decision:
        if moment.queue.length > self._pace.max_queue_size:
            return Decision(Answer.SKIP, self._pace.delay)
        return GO


class QueueTooShort(Throttler):
    """Low priority: waits while the queue is short, so that jobs get larger. Waits once, then allows the poll."""

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
            self._waiting.pop(name, None)  # another thread may have, for another partition of the box
            return GO
        return Decision(Answer.THROTTLE, self._pace.delay)


class QueueTooYoung(Throttler):
    """Low priority: skips while the oldest job is young, which shows that the processors keep up."""

    name = "redis_queue_time_lag"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def __call__(self, moment: Moment) -> Decision:
        pushed_at = moment.queue.oldest_pushed_at
        if pushed_at is not None and moment.unix_now - pushed_at < self._pace.min_queue_timelag:
            return Decision(Answer.SKIP, self._pace.delay)
        return GO


class RateLimited(Throttler):
    """Allows each box ``rate_limit`` polls per ``rate_interval`` that nobody asked for."""

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
        """Gives the poll back: it found new rows, so it does not count."""
        with self._lock:
            polls = self._polls.get(box.name)
            if polls:
                polls.pop()
