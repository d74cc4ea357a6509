"""The worker: starts its loops in order, and stops them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from boxengine.engine.running.closing import CLOSING_TIME, Closing, close_all
from boxengine.engine.running.health import Health
from boxengine.engine.running.threads import ThreadGroup
from boxengine.ports import Clock, ErrorTracker, Service

MOMENT = 0.5
"""Seconds that each kind of loop gets to stop, even if those before it used up the time."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A group of threads, and what wakes them so that they can stop."""

    threads: ThreadGroup
    interrupt: Callable[[], None] = lambda: None
    """Makes a turn that waits return at once."""


class Worker:
    """All loops of a process. ``start`` and ``stop`` may be called twice, and ``stop`` before ``start``."""

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
        sources: loops that bring in work (listener, poller). They stop first.
        processors: loops that deliver. They finish the batches that they hold.
        housekeeping: leases and retention. They stop last, because the processors need their leases until the end.
        release: lets other workers take over. Called even if a thread hangs.
        close: transports and connections, closed last, group by group. Skipped if a thread hangs, which may be using them.
        closing_time: the limit for ``release`` and for each group of ``close``.
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
        """Starts all loops and returns."""
        for service in self._services:
            service.start()
        for loop in (*self._housekeeping, *self._processors, *self._sources):
            loop.threads.start()

    def stop(self, *, within: timedelta) -> list[str]:
        """Stops in order. Returns the names of the threads and closings that did not end in time."""
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
        # The loops before may have used up the time. A loop that stops as soon as it is asked must not count as stuck.
        until = max(until, self._clock.monotonic() + MOMENT)
        return [name for loop in loops for name in loop.threads.join(until=until)]
