"""``python -m tests.chaos.jobs.unaware start``: boxengine in a machine that does not notice that it was suspended.

Its monotonic clock leaves out the time for which the process was stopped, as in a virtual machine that is paused. So its
watchdog sees no lease that is over, handlers go on, and they write: only the fence in the database is left to refuse them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from boxengine.adapters.system import SystemClock
from boxengine.cli.main import run

NOTICED = 1.0
"""Seconds. The watchdog asks for the time four times a second: with a longer gap the process was stopped."""


class Unaware:
    """A clock that stands still while nobody asks for the time."""

    def __init__(self, true_time: Callable[[], float]) -> None:
        self._true_time = true_time
        self._lock = threading.Lock()
        self._last = true_time()
        self._missed = 0.0

    def __call__(self) -> float:
        with self._lock:
            now = self._true_time()
            gap, self._last = now - self._last, now
            if gap > NOTICED:
                self._missed += gap
            return now - self._missed


if __name__ == "__main__":
    clock = Unaware(SystemClock().monotonic)
    SystemClock.__init__ = lambda self: setattr(self, "monotonic", clock)  # type: ignore[method-assign]
    run()
