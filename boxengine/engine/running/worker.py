"""The worker: its loops started in order and stopped in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from boxengine.engine.running.closing import CLOSING_TIME, Closing, close_all
from boxengine.engine.running.health import Health
from boxengine.engine.running.threads import ThreadGroup
from boxengine.ports import Clock, ErrorTracker, Service

MOMENT = 0.5
"""Seconds that each kind of loop has for stopping, however late it is asked."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One kind of loop, and how it is asked to stop beside its threads' own event."""

    threads: ThreadGroup
    interrupt: Callable[[], None] = lambda: None
    """Lets a turn that waits come back at once."""


class Worker:
    """All loops of one process. ``start`` and ``stop`` may each be called twice, and ``stop`` before ``start``."""

    def __init__(
        self,
        *,
        sources: Sequence[Loop],
        processors: Sequence[Loop],
        housekeeping: Sequence[Loop],
        services: Sequence[Service],
        release: Sequence[Closing] = (),
        close: Sequence[Sequence[Closing]],
        health: Health,
        clock: Clock,
        error_tracker: ErrorTracker,
        closing_time: timedelta = CLOSING_TIME,
    ) -> None:
        """Args:
        sources: what brings work in (listener, poller); stopped first.
        processors: what delivers; finish what they hold.
        housekeeping: leases and retention; the leases are kept until the processors are done.
        release: lets other workers take over; also called where a thread hangs.
        close: called last, one group after the other: transports, connections. Not called where a thread hangs, which
            may be using them.
        closing_time: for ``release`` and for each group of ``close``.
        """
        self._sources = sources
        self._processors = processors
        self._housekeeping = housekeeping
        self._services = services
        self._release = release
        self._close = close
        self._track = error_tracker
        self._closing_time = closing_time
        self._health = health
        self._clock = clock
        self._stopped = False

    def start(self) -> None:
        """Starts everything and returns."""
        for service in self._services:
            service.start()
        for loop in (*self._housekeeping, *self._processors, *self._sources):
            loop.threads.start()

    def stop(self, *, within: timedelta) -> list[str]:
        """Stops in order; returns the names of the threads, and of what was to be closed, that had not ended in time."""
        if self._stopped:
            return []
        self._stopped = True
        self._health.stopping()
        until = self._clock.monotonic() + within.total_seconds()
        stuck = self._stop(self._sources, until)
        stuck += self._stop(self._processors, until)
        stuck += self._stop(self._housekeeping, until)
        services = [Closing(f"the HTTP server {number}", each.stop) for number, each in enumerate(self._services, 1)]
        unclosed = self._close_all(services) + self._close_all(self._release)
        if not stuck:
            unclosed += [what for group in self._close for what in self._close_all(group)]
        return stuck + unclosed

    def _close_all(self, together: Sequence[Closing]) -> list[str]:
        return close_all(together, within=self._closing_time, clock=self._clock, track=self._track)

    def _stop(self, loops: Sequence[Loop], until: float) -> list[str]:
        for loop in loops:
            loop.threads.ask_to_stop()
            loop.interrupt()
        # Those before may have used the time up; who stops at once when asked must not be called stuck for that.
        until = max(until, self._clock.monotonic() + MOMENT)
        return [name for loop in loops for name in loop.threads.join(until=until)]
