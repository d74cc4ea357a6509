"""What is left of a hold: the leases that its drain still has, and until when.

A hold may begin without leases: ``Vacancies`` says which. Its first batch needs none, because the database's lock decides who
works on a bucket. Whatever is left after that batch is leased, and so is a batch that takes long. Where others have taken such
a bucket meanwhile, whoever is refused it by the database must read it once more when the other has finished, or rows that were
committed in between would wait until a lease has run out.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.timing import TIMING
from boxengine.ports import Hold, JobQueue, WhenLong

OVER = float("-inf")


class Holding:
    """The state of one hold. The drain lets buckets go; the lease keeper, in its own thread, reports what a renewal came to.

    A bucket that is being let go may look lost to a renewal under way at the same moment. It is not: nobody else can have
    its lease before this holding has let it go.
    """

    def __init__(self, hold: Hold, queue: JobQueue, *, ttl: timedelta = timedelta(seconds=TIMING.lease)) -> None:
        """Args:
        ttl: how long leases last that are asked for later.
        """
        self._hold = hold
        self._jobs = hold.jobs
        """Those that brought the buckets here."""
        self._queue = queue
        self._ttl = ttl
        self._asking = False
        """Whether a thread asks for the leases of a hold that began without."""
        self._read_without_leases = False
        """Whether the batch under way, or the last one, began without leases."""
        self.done_without_leases: frozenset[int] = frozenset()
        """Buckets that were empty before the coordinator was asked for them."""
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
        """The buckets that are still held."""
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
            self._read_without_leases = not self._hold.leased

    def release(self, buckets: Collection[int]) -> frozenset[int]:
        """Frees these leases; returns the buckets wanted again, which stay held."""
        with self._lock:
            wanted = self._wanted & frozenset(buckets) & self.buckets
            self._letting_go = going = frozenset(buckets) - wanted
        try:
            if going and self._dropped_without_leases(going):
                self.done_without_leases |= going
                self._queue.finish(self.box, self._jobs_of(going))
            elif going:
                kept = self._queue.release(self._hold, going)
                self._drop(going - kept)
                wanted |= kept
        finally:
            self._going_is_over()
        return wanted

    def hand_back(self, jobs: Sequence[Job], *, when_long: WhenLong = WhenLong.QUEUE) -> bool:
        """Frees the leases of these jobs' buckets and queues the jobs, so that others get their turn.

        Returns False where it has not done so because the queue is long, see ``when_long``.
        """
        buckets = frozenset(job.bucket for job in jobs)
        with self._lock:
            self._letting_go = buckets
        try:
            if self._dropped_without_leases(buckets):
                self._queue.finish(self.box, jobs)
                when_long = WhenLong.QUEUE  # there is no lease to keep
            held = replace(self._hold, buckets=buckets & self.buckets)
            queued = self._queue.hand_back(held, jobs, when_long=when_long)
            if queued or when_long is not WhenLong.KEEP:
                self._drop(buckets)
        finally:
            self._going_is_over()
        return queued

    def leave(self, buckets: Collection[int]) -> None:
        """Lets these leases run out, and tells the coordinator that no worker died.

        Orphaned buckets are not reported, so the next holder is careful too.
        """
        if not buckets:
            return
        self.secure()
        left = frozenset(buckets) - self._hold.orphaned
        if left:
            self._queue.leave(self._hold, left)
        self._drop(frozenset(buckets))

    def leave_all(self, *, within: timedelta | None = None) -> None:
        """Like ``leave``, for all buckets that are still held.

        Args:
            within: how long their leases last from now on; None: as long as they would.
        """
        if within is not None and within < self._ttl and self.buckets:
            self.secure()
            self._queue.extend(self._hold, ttl=within)
        self.leave(self.buckets)

    def give_way(self, buckets: Collection[int]) -> frozenset[int]:
        """Somebody else works on these, so the database refused them; returns those that are free by now, which stay held.

        The leases of the others run out by themselves, or end when that somebody has finished.
        """
        self.secure()
        held = self.buckets.intersection(buckets) - self._hold.orphaned
        # Without a lease, nobody could tell this holding that the other has finished. Now that it has one, it looks again.
        again = self._read_without_leases or not held
        kept = held if again else self._queue.give_way(self._hold, held)
        self._drop(frozenset(buckets) - kept)
        return kept

    def secure(self) -> None:
        """Asks for the leases of a hold that began without. Those that it does not get are not held any more."""
        if self._hold.leased or not self.buckets:
            return
        lost = self._lease(self._ttl, partly=True)
        if lost:
            self._drop(lost)
            self._queue.finish(self.box, self._jobs_of(lost))
        elif lost is None and not self._hold.leased:
            # The lease keeper asks at this moment. It frees what it gets for buckets that are no longer held.
            self.hand_back(self._jobs_of(self.buckets))

    # ── what the lease keeper does ───────────────────────────────────────────────────────────────────

    def renew(self, *, ttl: timedelta) -> frozenset[int] | None:
        """Renews the leases and returns the buckets whose lease was lost.

        For a hold that began without leases, it asks for them. None where it does not get them all, and the batch under way
        goes on without: whoever has one of these buckets is refused it by the database.
        """
        hold = self._hold
        if hold.leased:
            return self._queue.extend(hold, ttl=ttl)
        self._lease(ttl, partly=False)
        return frozenset() if self._hold.leased else None

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

    def _jobs_of(self, buckets: Collection[int]) -> list[Job]:
        return [job for job in self._jobs if job.bucket in buckets]

    def _dropped_without_leases(self, buckets: frozenset[int]) -> bool:
        """Whether there are no leases to free: then these buckets are not held any more."""
        with self._lock:
            if self._hold.leased:
                return False
            self._hold = replace(self._hold, buckets=self.buckets - buckets)
            return True

    def _lease(self, ttl: timedelta, *, partly: bool) -> frozenset[int] | None:
        """Asks for the leases of all buckets; returns those that others have. None: another thread is asking.

        Args:
            partly: whether to keep what it gets where that is not all.
        """
        with self._lock:
            if self._asking or self._hold.leased:
                return None
            self._asking, asked = True, self._hold
        try:
            had = self._queue.seize(asked.box, self._jobs_of(asked.buckets), ttl=ttl, left=True)
            # Those whose last holder died are as good as lost: the next holder is to work on them with care.
            usable = frozenset[int]() if had is None else had.buckets - had.orphaned
            with self._lock:
                lost = self.buckets - usable
                kept = self.buckets & usable if partly or not lost else frozenset[int]()
                if had is not None and (kept or partly):
                    self._hold = replace(had, buckets=self.buckets)
                    self.valid_until = had.valid_until
                    # Rows may have been wanted of whoever had left one of these leases.
                    self._wanted |= kept
        finally:
            self._asking = False
        if had is not None:
            self._free(had, usable - kept)
        return lost

    def _free(self, had: Hold, buckets: frozenset[int]) -> None:
        """Frees leases of buckets that the drain has let go while they were asked for."""
        if not buckets:
            return
        kept = self._queue.release(had, buckets)
        if kept:
            self._queue.hand_back(replace(had, buckets=kept), self._jobs_of(kept))

    def _going_is_over(self) -> None:
        with self._lock:
            self._letting_go = frozenset()

    def _drop(self, buckets: frozenset[int]) -> None:
        with self._lock:
            self._hold = replace(self._hold, buckets=self.buckets - buckets)
