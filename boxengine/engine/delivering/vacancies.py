"""Buckets that a thread may begin to work on before the coordinator has given it a lease.

A fresh item waits for everything that stands between its commit and its transport. Asking for a lease is a tenth of that, and
decides nothing: the database's lock says who works on a bucket. So a worker that has reason to think that nobody is at a bucket
does not ask. If it is wrong, one of the two is refused by the database, and reads the bucket when the other has finished
(``JobQueue.finish``, ``JobQueue.give_way``).

Leases have a second purpose. A worker that dies leaves them behind, and the next one sends what may have killed it with care
(``care``). Three rules keep that:

- A bucket of which a worker died is begun under a lease.
- So is a bucket that a look at the store has found. That is how the rows of a worker that died are found.
- So is every bucket in a worker's first seconds, or an item that ends each worker at once would never leave a mark.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from boxengine.domain.box import Box, Storage
from boxengine.domain.job import Job
from boxengine.engine.running.lease_length import LeaseLength
from boxengine.engine.timing import TIMING, Timing
from boxengine.errors import QueueUnavailable
from boxengine.ports import Clock, JobQueue


@dataclass(slots=True)
class _Known:
    """What is known of one box."""

    box: Box
    asked: float
    """When somebody last wanted to know (monotonic, as all times here)."""
    in_work: frozenset[int] = frozenset()
    """Buckets that somebody works on, or died of."""
    looked: float = float("-inf")


class Vacancies:
    """Of one process. The lease keeper looks; any thread may ask."""

    def __init__(
        self,
        queue: JobQueue,
        *,
        length: LeaseLength,
        clock: Clock,
        storages: Collection[Storage] = (Storage.LOG,),
        timing: Timing = TIMING,
    ) -> None:
        """Args:
        length: how old a worker must be, and how old the answer of a look may be.
        storages: those of boxes whose workers all keep to the database's locks. Workers of sbmt-outbox, which know nothing but
            leases, may be at tables.
        """
        self._queue = queue
        self._storages = storages
        self._length = length
        self._clock = clock
        self._timing = timing
        self._born = clock.monotonic()
        self._known: dict[str, _Known] = {}
        """By box name."""

    def has(self, box: Box, jobs: Sequence[Job]) -> bool:
        """Whether these buckets may be begun without leases. False where that is not known yet; the next look finds out."""
        if box.storage not in self._storages:
            return False
        now = self._clock.monotonic()
        known = self._known.get(box.name)
        if known is None:
            self._known[box.name] = _Known(box, now)
            return False
        known.asked, lease = now, self._length.ttl.total_seconds()
        return (
            now - self._born >= self._timing.by_lease * lease
            and now - known.looked < lease
            and all(job.named and job.bucket not in known.in_work for job in jobs)
        )

    def look(self) -> None:
        """Asks which buckets are in work, in the boxes that somebody asked about lately."""
        now = self._clock.monotonic()
        for known in list(self._known.values()):
            if now - known.asked < self._timing.asked_lately:
                try:
                    known.in_work, known.looked = self._queue.in_work(known.box), now
                except QueueUnavailable:
                    return  # what is known grows too old to be used
