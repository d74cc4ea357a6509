"""Announces that a worker process lives, for the console and ``boxengine status``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable
from boxengine.ports import Engagement, OpenCircuit, WorkerInfo, Workers

INTERVAL = timedelta(seconds=TIMING.announced)
PAUSE = timedelta(seconds=TIMING.circuits_seen)
TTL = timedelta(seconds=TIMING.announced_for)


class Heartbeat:
    """Announces one worker process at intervals."""

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
        circuits: returns the circuits that are open now.
        tell: called with each of them at every announcement.
        at_work: returns what the threads are working on now.
        """
        self._workers = workers
        self._worker = worker
        self._circuits = circuits
        self._tell = tell
        self._at_work = at_work
        self._known: frozenset[tuple[str, str]] | None = None
        self._due_in = timedelta(0)

    def turn(self) -> timedelta:
        """Announces the process if it is time, or if a circuit opened or closed. Returns the pause until the next turn."""
        circuits = tuple(self._circuits())
        known = frozenset((circuit.box, circuit.transport) for circuit in circuits)
        if known != self._known or self._due_in <= timedelta(0):
            self._announce(circuits, known)
        self._due_in -= PAUSE
        return PAUSE

    def _announce(self, circuits: Sequence[OpenCircuit], known: frozenset[tuple[str, str]]) -> None:
        for circuit in circuits:
            self._tell(circuit)
        # The loops that need Redis report its outage. This one is for display only.
        with contextlib.suppress(QueueUnavailable):
            now = replace(self._worker, circuits=tuple(circuits), at_work=tuple(self._at_work()))
            self._workers.announce(now, ttl=TTL)
            self._known, self._due_in = known, INTERVAL

    def withdraw(self) -> None:
        """The worker has stopped."""
        with contextlib.suppress(QueueUnavailable):
            self._workers.withdraw(self._worker.id)
