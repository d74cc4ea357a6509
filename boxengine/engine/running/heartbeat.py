"""A worker's word that it lives, for people to see."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable
from boxengine.ports import Engagement, OpenCircuit, WorkerInfo, Workers

INTERVAL = timedelta(seconds=TIMING.announced)
TTL = timedelta(seconds=TIMING.announced_for)


class Heartbeat:
    """Announces one worker process, again and again."""

    def __init__(
        self,
        workers: Workers,
        worker: WorkerInfo,
        *,
        circuits: Callable[[], Iterable[OpenCircuit]] = tuple,
        tell: Callable[[OpenCircuit], None] = lambda _circuit: None,
        at_work: Callable[[], Sequence[Engagement]] = tuple,
    ) -> None:
        """Args:
        circuits: those that are open just now.
        tell: called with each of them, every time.
        at_work: what threads are at just now.
        """
        self._workers = workers
        self._worker = worker
        self._circuits = circuits
        self._tell = tell
        self._at_work = at_work

    def turn(self) -> timedelta:
        """Announces it once; returns the pause until the next time."""
        circuits = tuple(self._circuits())
        for circuit in circuits:
            self._tell(circuit)
        # An outage of Redis is told by the loops that need it; this one only shows.
        with contextlib.suppress(QueueUnavailable):
            now = replace(self._worker, circuits=circuits, at_work=tuple(self._at_work()))
            self._workers.announce(now, ttl=TTL)
        return INTERVAL

    def withdraw(self) -> None:
        """The worker has stopped."""
        with contextlib.suppress(QueueUnavailable):
            self._workers.withdraw(self._worker.id)
