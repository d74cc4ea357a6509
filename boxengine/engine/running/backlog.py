"""Measures how far behind each box is: its oldest pending row, its stranded rows and its job queue.

One of a box's workers measures it, a few times a minute. The others report nothing, so two workers never contradict each
other. An observer drops a measurement by itself once nobody repeats it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from boxengine.domain.box import Box
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.engine.polling.queue_lengths import QueueLengths
from boxengine.engine.running.outages import Outages
from boxengine.engine.running.rounds import SOON, Rounds
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable, Unavailable
from boxengine.ports import Clock, Duty, HistoryStore, JobQueue, LeaseName, Leases, Observer, events

INTERVAL = timedelta(seconds=TIMING.measured)
STRANDED_INTERVAL = timedelta(minutes=1)
"""Stranded rows appear only when the configuration changes, so there is no hurry to count them."""
LEASE_TTL = timedelta(seconds=TIMING.measured_for)
"""Short, so that another worker soon replaces one that was killed; long enough for the holder to miss one turn."""


class Backlog:
    """Measures the boxes of one worker. One thread runs its turns."""

    def __init__(
        self,
        boxes: Sequence[Box],
        *,
        store: HistoryStore,
        queue: JobQueue,
        leases: Leases,
        pauses: PauseWatch,
        outages: Outages,
        observer: Observer,
        clock: Clock,
        token: str,
    ) -> None:
        self._rounds = Rounds(boxes, clock=clock)
        self._store = store
        self._lengths = QueueLengths(queue, observer=observer, clock=clock)
        self._leases = leases
        self._pauses = pauses
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._token = token
        self._chosen_for: set[LeaseName] = set()
        """Leases that this worker may hold."""
        self._coordinated = True
        """Whether the coordinator has answered everything in this turn."""
        self._stranded_at: dict[str, float] = {}
        """By box, the monotonic time at which stranded rows were last counted."""

    def turn(self) -> timedelta:
        """Measures all boxes, or as many as the time allows; returns the pause until the next turn."""
        self._coordinated = True
        for box in self._rounds.turn():
            self._measure(box)
        return SOON if self._rounds.cut_short else INTERVAL

    def release(self) -> None:
        """Frees the leases when this worker stops, so that another one measures at once."""
        with contextlib.suppress(QueueUnavailable):
            for name in self._chosen_for:
                self._leases.release(name, self._token)

    def _measure(self, box: Box) -> None:
        what = f"measuring {box.name}"
        try:
            self._look(box)
            self._outages.worked(what)
        except QueueUnavailable:
            self._coordinated = False
        except Unavailable:
            pass  # the loops that need the database report its outage; there is nothing to measure
        except Exception as error:  # one box's trouble must not stop the others
            self._outages.failed(what, error)

    def _look(self, box: Box) -> None:
        if not self._chosen(box):
            # When this worker takes over, it must count at once and not wait for its own minute to pass.
            self._stranded_at.pop(box.name, None)
            return
        self._observer.see(events.OldestPending(box, seconds=self._age(self._store.oldest_pending(box))))
        self._measure_unread(box)
        self._count_stranded(box)
        if self._coordinated:
            self._lengths.measure(box, paused=self._pauses.paused(box))

    def _measure_unread(self, box: Box) -> None:
        if box.subscription is not None:
            self._observer.see(events.Unread(box, seconds=self._age(self._store.unread_since(box))))

    def _age(self, since: datetime | None) -> float:
        """Seconds since this moment by the database's clock, which set it; 0 if there is none."""
        return 0.0 if since is None else max(0.0, (self._store.now() - since).total_seconds())

    def _count_stranded(self, box: Box) -> None:
        now, last = self._clock.monotonic(), self._stranded_at.get(box.name)
        if last is not None and now - last < STRANDED_INTERVAL.total_seconds():
            return
        self._observer.see(events.Stranded(box, items=self._store.stranded_items(box)))
        self._stranded_at[box.name] = now

    def _chosen(self, box: Box) -> bool:
        name = LeaseName(Duty.BACKLOG, box.name)
        self._chosen_for.add(name)
        if self._coordinated:
            try:
                return self._leases.acquire(name, self._token, ttl=LEASE_TTL)
            except QueueUnavailable:
                self._coordinated = False
        # Without the coordinator nothing is delivered, and that is when people most need the age of the oldest row.
        return True
