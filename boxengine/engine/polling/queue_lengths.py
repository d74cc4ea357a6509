"""Measures how long the boxes' queues are."""

from __future__ import annotations

from boxengine.domain.box import Box
from boxengine.engine.polling.schedule import NEVER
from boxengine.engine.timing import TIMING, Timing
from boxengine.ports import Clock, JobQueue, Observer, QueueState, events


class QueueLengths:
    """Measures queues and tells the observer. Shared by threads."""

    def __init__(self, queue: JobQueue, *, observer: Observer, clock: Clock, timing: Timing = TIMING) -> None:
        self._queue = queue
        self._observer = observer
        self._clock = clock
        self._timing = timing
        self._empty_at: dict[str, float] = {}
        """By box, when its queue was last seen empty (monotonic)."""

    def measure(self, box: Box, *, paused: bool = False) -> QueueState:
        """The queue as it is now. That of a paused box has no lag: its jobs wait for a person, not for threads."""
        now = self._clock.monotonic()
        state = self._queue.state(box)
        pushed_at = state.oldest_pushed_at
        lag = 0.0 if pushed_at is None or paused else max(0.0, self._clock.now().timestamp() - pushed_at)
        self._observer.see(events.QueueMeasured(box, length=state.length, lag=lag))
        if state.length == 0:
            self._empty_at[box.name] = now
        else:
            self._empty_at.pop(box.name, None)
        return state

    def recent(self, box: Box) -> QueueState:
        """As ``measure``, but an "empty" reading is trusted for a while."""
        if self._clock.monotonic() - self._empty_at.get(box.name, -NEVER) < self._timing.empty:
            return QueueState(0, None)
        return self.measure(box)
