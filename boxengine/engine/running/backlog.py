"""How far behind each box is, for the metrics: its oldest pending row, the rows that no worker looks for, and its
job queue.

Of all workers of a box one looks, a few times a minute. The others say nothing, so that no two of them contradict each
other; what an observer shows of a measurement it forgets by itself when nobody repeats it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.engine.polling.queue_lengths import QueueLengths
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.errors import QueueUnavailable, Unavailable
from boxengine.ports import Clock, Duty, HistoryStore, JobQueue, LeaseName, Leases, Observer, events

INTERVAL = timedelta(seconds=TIMING.measured)
STRANDED_INTERVAL = timedelta(minutes=1)
"""Rows in buckets that the box does not have appear with a change of the configuration: there is no hurry."""
LEASE_TTL = timedelta(seconds=TIMING.measured_for)
"""Others take over soon from a worker that was killed, and leave the box to one that only misses a turn."""


class Backlog:
    """Measures the boxes of one worker. Its turn is taken by one thread."""

    def __init__(
        self,
        boxes: Sequence[Box],
        *,
        store: HistoryStore,
        queue: JobQueue,
        leases: Leases,
        outages: Outages,
        observer: Observer,
        clock: Clock,
        token: str,
    ) -> None:
        self._boxes = boxes
        self._store = store
        self._lengths = QueueLengths(queue, observer=observer, clock=clock)
        self._leases = leases
        self._outages = outages
        self._observer = observer
        self._clock = clock
        self._token = token
        self._chosen_for: set[LeaseName] = set()
        """Names of the leases that may be this worker's."""
        self._stranded_at: dict[str, float] = {}
        """When stranded rows were counted last, by box, on the monotonic clock."""

    def turn(self) -> timedelta:
        """Looks at all boxes; returns the pause until the next time."""
        for box in self._boxes:
            what = f"measuring {box.name}"
            try:
                self._look(box)
                self._outages.worked(what)
            except Unavailable:
                pass  # told by the loops that cannot do without; nothing is known just now, and nothing is said
            except Exception as error:  # one box's trouble must not stop the others
                self._outages.failed(what, error)
        return INTERVAL

    def release(self) -> None:
        """Lets another worker look at once, when this one stops."""
        with contextlib.suppress(QueueUnavailable):
            for name in self._chosen_for:
                self._leases.release(name, self._token)

    def _look(self, box: Box) -> None:
        if not self._chosen(box):
            # When the other worker ends, this one must count at once, not only after its own minute.
            self._stranded_at.pop(box.name, None)
            return
        since = self._store.oldest_pending(box)
        age = 0.0 if since is None else max(0.0, (self._clock.now() - since).total_seconds())
        self._observer.see(events.OldestPending(box, seconds=age))
        self._count_stranded(box)
        self._lengths.measure(box)

    def _count_stranded(self, box: Box) -> None:
        now, last = self._clock.monotonic(), self._stranded_at.get(box.name)
        if last is not None and now - last < STRANDED_INTERVAL.total_seconds():
            return
        self._observer.see(events.Stranded(box, items=self._store.stranded_items(box)))
        self._stranded_at[box.name] = now

    def _chosen(self, box: Box) -> bool:
        name = LeaseName(Duty.BACKLOG, box.name)
        self._chosen_for.add(name)
        try:
            return self._leases.acquire(name, self._token, ttl=LEASE_TTL)
        except QueueUnavailable:
            # While the coordinator is out nothing may be delivered, so this is when people must see the oldest row's age.
            return True
