"""Wake-ups within one process."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from threading import Condition

from boxengine.ports import Signal


class MemoryWakeups:
    """``Wakeups`` and its notifier in one: the twin of ``RedisWakeups`` and ``RedisNotifier``."""

    reliable: bool = True
    beginnings: int = 1

    def __init__(self) -> None:
        self._changed = Condition()
        self._signals: dict[Signal, None] = {}
        self._closed = False

    def notify(self, signals: Iterable[Signal]) -> None:
        """Hands each different signal to the next ``wait``."""
        with self._changed:
            self._signals |= dict.fromkeys(signals)
            self._changed.notify_all()

    def wait(self, timeout: timedelta) -> list[Signal]:
        """Blocks in real time until at least one signal came or the time is over; at once empty when closed."""
        with self._changed:
            if timeout > timedelta(0):
                self._changed.wait_for(lambda: self._signals or self._closed, timeout.total_seconds())
            signals = [] if self._closed else list(self._signals)
            self._signals.clear()
        return signals

    def close(self) -> None:
        """See ``Wakeups.close``."""
        self.interrupt()

    def interrupt(self) -> None:
        """See ``Wakeups.interrupt``."""
        with self._changed:
            self._closed = True
            self.reliable = False
            self._changed.notify_all()
