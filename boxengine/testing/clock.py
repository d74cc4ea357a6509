"""The clock of boxes under test: it stands still, and knows how late it is meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from boxengine.adapters.memory.clock import ManualClock


class PresentClock(ManualClock):
    """Starts at the present and moves only when told to.

    Moments that an application takes from the real clock, such as ``available_at``, are compared with ``present``. The pauses
    of retries are not: however long a test takes, they pass only where it moves the clock.
    """

    def __init__(self, real: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._real = real
        self._began = real()
        self._followed = timedelta(0)
        """How much of what it has moved has really passed."""
        super().__init__(self._began)

    def present(self) -> datetime:
        """The real clock's reading, and what the test has advanced this one beyond it."""
        advanced = self.now() - self._began - self._followed
        return max(self.now(), self._real() + advanced)

    def advance(self, span: timedelta) -> None:
        """Moves both readings on, by a timedelta."""
        if not isinstance(span, timedelta):
            raise TypeError(f"advance takes a timedelta, such as timedelta(hours=1), not {span!r:.80}")
        super().advance(span)

    def move_to(self, moment: datetime) -> None:
        """Moves on to a moment; what has really passed until then counts as no advance."""
        now = self.now()
        self._followed += min(moment, self.present()) - now
        self.advance(moment - now)


def present(clock: ManualClock) -> datetime:
    """How late it is for the application; with a clock of the test's own, what that says."""
    return clock.present() if isinstance(clock, PresentClock) else clock.now()


def move(clock: ManualClock, *, to: datetime) -> None:
    """Moves the clock on, unless it is later already."""
    if to <= clock.now():
        return
    if isinstance(clock, PresentClock):
        clock.move_to(to)
    else:
        clock.advance(to - clock.now())
