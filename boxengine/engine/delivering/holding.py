"""What is left of a hold: the leases that its drain still has, and until when."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.ports import Hold, JobQueue

OVER = float("-inf")


class Holding:
    """The state of one hold. The drain lets buckets go; the lease keeper, in its own thread, reports what a renewal came to.

    A bucket that is being let go may look lost to a renewal under way at the same moment. It is not: nobody else can have
    the bucket before this holding has finished with it.
    """

    def __init__(self, hold: Hold, queue: JobQueue) -> None:
        self._hold = hold
        self._queue = queue
        self._letting_go: frozenset[int] = frozenset()
        self._wanted: frozenset[int] = frozenset()
        """Buckets with rows that the drain may not have read: it was told of them after it had begun its last batch."""
        self._lock = threading.Lock()
        self.valid_until = hold.valid_until
        """Monotonic time after which nothing more may be sent."""

    @property
    def box(self) -> Box:
        """The box of these buckets."""
        return self._hold.box

    @property
    def hold(self) -> Hold:
        """The hold with the buckets that are left."""
        return self._hold

    @property
    def buckets(self) -> frozenset[int]:
        """Those still held."""
        return self._hold.buckets

    @property
    def over(self) -> bool:
        """Whether there is nothing left to renew."""
        return self.valid_until == OVER or not self.buckets

    # ── what the listener does ───────────────────────────────────────────────────────────────────────

    def want(self, buckets: Collection[int], *, now: float) -> frozenset[int]:
        """Rows were committed in these buckets; returns those that are held here, which the drain will read once more.

        A bucket that is being let go is not, nor one whose lease may have run out: the coordinator decides who reads it next.

        Args:
            now: monotonic time.
        """
        if now >= self.valid_until:
            return frozenset()
        with self._lock:
            here = self.buckets.intersection(buckets) - self._letting_go
            self._wanted |= here
        return here

    # ── what the drain does ──────────────────────────────────────────────────────────────────────────

    def reading(self, buckets: Collection[int]) -> None:
        """A batch begins that sees every row committed in these buckets so far."""
        with self._lock:
            self._wanted -= frozenset(buckets)

    def release(self, buckets: Collection[int]) -> frozenset[int]:
        """Frees these leases; returns the buckets wanted again, which stay held."""
        with self._lock:
            wanted = self._wanted & frozenset(buckets) & self.buckets
            self._letting_go = going = frozenset(buckets) - wanted
        try:
            if going:
                wanted |= (kept := self._queue.release(self._hold, going))
                self._drop(going - kept)
        finally:
            self._going_is_over()
        return wanted

    def hand_back(self, jobs: Sequence[Job]) -> None:
        """Frees the leases of these jobs' buckets and queues the jobs, so that others get their turn."""
        buckets = frozenset(job.bucket for job in jobs)
        with self._going(buckets):
            self._queue.hand_back(replace(self._hold, buckets=buckets & self.buckets), jobs)
            self._drop(buckets)

    def leave(self, buckets: Collection[int]) -> None:
        """Lets these leases run out, and tells the coordinator that no worker died.

        Orphaned buckets are not reported, so the next holder is careful too.
        """
        left = frozenset(buckets) - self._hold.orphaned
        if left:
            self._queue.leave(self._hold, left)
        if buckets:
            self._drop(frozenset(buckets))

    def leave_all(self) -> None:
        """The same for whatever is still held."""
        self.leave(self.buckets)

    # ── what the lease keeper reports ────────────────────────────────────────────────────────────────

    def renewed(self, lost: Collection[int], *, until: float) -> None:
        """A renewal was answered.

        Args:
            lost: buckets whose lease was gone.
            until: monotonic time until which the other leases last.
        """
        with self._lock:
            gone = self.buckets.intersection(lost) - self._letting_go
            if gone:
                # Somebody else may be at these buckets, so the drain must send nothing more. The holding stays over for good:
                # if a later renewal revived it, the drain would never know that it had lost a bucket.
                self._hold = replace(self._hold, buckets=self.buckets - gone)
                self.valid_until = OVER
            elif self.valid_until != OVER:
                self.valid_until = until

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _going(self, buckets: Collection[int]) -> Iterator[None]:
        with self._lock:
            self._letting_go = frozenset(buckets)
        try:
            yield
        finally:
            self._going_is_over()

    def _going_is_over(self) -> None:
        with self._lock:
            self._letting_go = frozenset()

    def _drop(self, buckets: frozenset[int]) -> None:
        with self._lock:
            self._hold = replace(self._hold, buckets=self.buckets - buckets)
