"""Where threads without work wait: one of them at the queue for all, the others here.

Those here wait for their turn at the queue, or for buckets that somebody hands them.
"""

from __future__ import annotations

import threading
from collections import deque
from enum import Enum

from boxengine.ports import Hold


class Turn(Enum):
    """What a thread does after it has waited."""

    AT_QUEUE = "at queue"
    """Wait at the queue, and call ``left_queue`` after."""
    NONE = "none"
    """Look around, show a sign of life, and go on waiting."""


class IdleThreads:
    """The threads of one processor that wait for work. Threads come and go through it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._at_queue = False
        self._waiting = 0
        self._reserved = 0
        """How many waiting threads are asked to stay for what ``give`` brings."""
        self._given: deque[Hold] = deque()
        self._asked: float | None = None
        """Seconds after which a thread is to look, until one has heard it."""
        self._watching = False
        """Whether one waits for such a time."""

    def wait(self, seconds: float) -> Hold | Turn:
        """Waits up to this many seconds; longer only if the thread was asked to stay."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._has_something() or self._asked is not None, seconds)
                if not self._has_something() and self._asked is not None:
                    self._watch(min(self._asked, seconds))
                # Asked to stay: the answer of one call to the coordinator.
                self._changed.wait_for(lambda: self._has_something() or self._is_free())
                if self._given:
                    return self._given.popleft()
                if self._at_queue:
                    return Turn.NONE
                self._at_queue = True
                return Turn.AT_QUEUE
            finally:
                self._waiting -= 1

    def queue_is_attended(self) -> bool:
        """Whether a thread waits at the queue."""
        return self._at_queue

    def can_watch(self) -> bool:
        """Whether one of the threads looks again soon: one here can be asked to, or all are at work and look when they finish."""
        return not self._at_queue or self._is_free()

    def watch(self, seconds: float) -> None:
        """Has one of the threads that wait here return after so many seconds, unless one does so already."""
        if self._watching or self._asked is not None:
            return
        with self._changed:
            if self._is_free():
                self._asked = seconds
                self._changed.notify()

    def left_queue(self) -> None:
        """The thread that waited at the queue has left it."""
        with self._changed:
            self._at_queue = False
            self._changed.notify()

    def reserve(self) -> bool:
        """Asks a thread to stay; False if none can. Call ``give`` or ``cancel`` after a True."""
        with self._changed:
            if not self._is_free():
                return False
            self._reserved += 1
            return True

    def give(self, hold: Hold) -> None:
        """Hands the thread that was asked to stay these buckets."""
        with self._changed:
            self._reserved -= 1
            self._given.append(hold)
            self._changed.notify()

    def cancel(self) -> None:
        """There is nothing for the thread that was asked to stay."""
        with self._changed:
            self._reserved -= 1
            self._changed.notify_all()

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────

    def _has_something(self) -> bool:
        return bool(self._given) or (not self._at_queue and self._is_free())

    def _watch(self, seconds: float) -> None:
        self._asked, self._watching = None, True
        try:
            self._changed.wait_for(self._has_something, seconds)
        finally:
            self._watching = False

    def _is_free(self) -> bool:
        """Whether a thread here is not reserved."""
        return self._waiting > self._reserved + len(self._given)
