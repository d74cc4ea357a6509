"""Announces that a worker process lives, for the console and ``boxengine status``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from boxengine.engine.timing import TIMING
from boxengine.errors import StoreUnavailable, Unavailable
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
        database: Callable[[], str | None] = lambda: None,
        beside: Callable[[WorkerInfo, Sequence[str]], None] = lambda _worker, _boxes: None,
    ) -> None:
        """Args:
        circuits: returns the circuits that are open now.
        tell: called with each of them at every announcement.
        at_work: returns what the threads are working on now.
        database: what tells this worker's database from others; None: nothing does. Asked again after ``StoreUnavailable``.
        beside: called once for each worker that has boxes of the same names in another database, with these names.
        """
        self._workers = workers
        self._worker = worker
        self._circuits = circuits
        self._tell = tell
        self._at_work = at_work
        self._database = database
        self._beside = beside
        self._asked = False
        self._told: set[str] = set()
        """Ids of the workers of other databases that were reported."""
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
        # The loops that need the server report its outage. This one is for display only.
        with contextlib.suppress(Unavailable):
            self._ask_for_the_database()
            now = replace(self._worker, circuits=tuple(circuits), at_work=tuple(self._at_work()))
            self._workers.announce(now, ttl=TTL)
            self._known, self._due_in = known, INTERVAL
            self._look_beside()

    def _ask_for_the_database(self) -> None:
        if not self._asked:
            with contextlib.suppress(StoreUnavailable):
                self._worker = replace(self._worker, database=self._database())
                self._asked = True

    def _look_beside(self) -> None:
        me = self._worker
        if me.database is None:
            return
        for other, boxes in names_twice(me.database, me.boxes, self._workers.living()):
            if other.id not in self._told:
                self._told.add(other.id)
                self._beside(other, boxes)

    def withdraw(self) -> None:
        """The worker has stopped."""
        with contextlib.suppress(Unavailable):
            self._workers.withdraw(self._worker.id)


def names_twice(
    database: str | None, boxes: Collection[str], workers: Iterable[WorkerInfo]
) -> list[tuple[WorkerInfo, list[str]]]:
    """The workers of other databases that have boxes of the same names, with these names."""
    return [
        (worker, same)
        for worker in workers
        if database is not None and worker.database not in {None, database}
        if (same := sorted(set(boxes) & set(worker.boxes)))
    ]
