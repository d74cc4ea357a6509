"""Buckets that a thread may begin to work on before the coordinator has given it a lease.

A fresh item waits for everything that stands between its commit and its transport. Asking for a lease is a fifth of that, and
decides nothing: the database's lock says who works on a bucket. So a worker that has reason to think that nobody is at a bucket
does not ask. If the worker is wrong, the database refuses one of the two, which reads the bucket when the other has finished
(``JobQueue.finish``, ``JobQueue.give_way``). Tables at which workers of sbmt-outbox may be are left out, because those know
nothing but leases.

Leases have a second purpose. A worker that dies leaves its leases behind, which tells the next worker to send with care
(``care``) the items that may have killed the first one. Three rules keep that so:

- If a worker died while it had a bucket, the bucket is next begun under a lease.
- So is a bucket that a look at the store has found. That is how the rows of a worker that died are found, unless another hint
  comes first.
- So is every bucket in a worker's first seconds. Otherwise an item that ends each worker at once would leave no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from boxengine.domain.box import Box
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
    vacant: frozenset[int] = frozenset()
    """Buckets that nobody works on, waits with, or died of."""
    looked: float = float("-inf")


class Vacancies:
    """The buckets that one process may begin without a lease. The lease keeper looks; any thread may ask."""

    def __init__(
        self,
        queue: JobQueue,
        *,
        length: LeaseLength,
        clock: Clock,
        locks_decide: Callable[[Box], bool],
        timing: Timing = TIMING,
    ) -> None:
        """Args:
        length: how old a worker must be, and how old the answer of a look may be.
        locks_decide: see ``Store.locks_decide``.
        """
        self._queue = queue
        self._locks_decide = locks_decide
        self._length = length
        self._clock = clock
        self._timing = timing
        self._born = clock.monotonic()
        self._known: dict[str, _Known] = {}
        """By box name."""

    def take(self, box: Box, jobs: Sequence[Job]) -> bool:
        """Whether these buckets may be begun without leases, this once. If that is not known yet, the next look finds out."""
        if not self._locks_decide(box):
            return False
        now = self._clock.monotonic()
        known = self._known.setdefault(box.name, _Known(box, now))
        known.asked, lease = now, self._length.ttl.total_seconds()
        young, old = now - self._born < self._timing.by_lease * lease, now - known.looked >= lease
        buckets = frozenset(job.bucket for job in jobs)
        if young or old or not all(job.named for job in jobs) or not buckets <= known.vacant:
            return False
        known.vacant -= buckets
        return True

    def free(self, box: Box, buckets: Collection[int]) -> None:
        """These were taken, and are done. What failed stays taken until the next look, which sees its pause."""
        if buckets:
            self._known[box.name].vacant |= frozenset(buckets)

    def look(self) -> None:
        """Asks what is vacant in the boxes that somebody asked about lately. If that takes long, the next look goes on."""
        began = self._clock.monotonic()
        lately = [known for known in list(self._known.values()) if began - known.asked < self._timing.asked_lately]
        for known in sorted(lately, key=lambda each: each.looked):
            now = self._clock.monotonic()
            if now - began > self._timing.unnoticed:
                return
            try:
                free = frozenset(self._queue.unattended(known.box, known.box.buckets))
                known.vacant, known.looked = free - self._queue.in_work(known.box), now
            except QueueUnavailable:
                return  # what is known grows too old to be used
