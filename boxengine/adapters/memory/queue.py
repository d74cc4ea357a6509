"""The job queue in memory."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Condition

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.ports import Clock, Hold, QueueState, WhenLong


@dataclass(slots=True)
class _Lane:
    """One box's queue and what is known of its buckets."""

    elements: deque[bytes] = field(default_factory=deque)
    """Encoded as in Redis, so that foreign ones have a place; the oldest on the right."""
    queued: set[int] = field(default_factory=set)
    wanted: set[int] = field(default_factory=set)
    leases: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Bucket to token and end."""
    in_work: dict[int, str] = field(default_factory=dict)
    """By bucket, the token of the holder that took it and has not released it."""
    finished: set[int] = field(default_factory=set)
    """Buckets in work on which somebody else has worked without a lease, and has finished since."""


class MemoryJobQueue:
    """``JobQueue`` of one process: the twin of ``RedisJobQueue``.

    Never blocks when asked to wait for no time, and deals out tokens in sequence, so that a simulation repeats itself.

    Args:
        clock: ends leases. Waiting is done in real time.
        enough_ids: a take stops once the ids of its jobs add up to this.
        longest: a queue with more jobs is long to ``hand_back``.
        on_corrupt: told of the elements of one take that are no jobs of the box; they have been dropped.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        enough_ids: int = 500,
        longest: int = 100,
        on_corrupt: Callable[[Box, Sequence[bytes]], None] = lambda _box, _elements: None,
    ) -> None:
        self._clock = clock
        self._enough_ids = enough_ids
        self._longest = longest
        self._on_corrupt = on_corrupt
        self._turns = itertools.count()
        self._tokens = itertools.count(1)
        self._changed = Condition()
        self._lanes: dict[str, _Lane] = {}
        self._interrupted = 0
        """How often."""

    def push(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor in work; returns how many."""
        with self._changed:
            return self._enqueue(self._lane(box), jobs)

    def push_raw(self, box: Box, element: bytes) -> None:
        """Queues an element unseen, as sbmt-outbox or a stranger would."""
        with self._changed:
            self._lane(box).elements.appendleft(element)
            self._changed.notify_all()

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        """Waits for a job of any of the boxes, then takes more of the same box, with their leases."""
        if not boxes:
            return None
        turn = next(self._turns) % len(boxes)
        with self._changed:
            box = self._first_with_jobs((*boxes[turn:], *boxes[:turn]), wait)
            if box is None:
                return None
            empty = Hold(box, f"hold-{next(self._tokens)}", (), self._clock.monotonic() + ttl.total_seconds())
            hold, foreign = self._take_share(self._lane(box), empty, share)
        if foreign:
            self._on_corrupt(box, foreign)
        return hold if hold.jobs else None

    def interrupt(self) -> None:
        """See ``JobQueue.interrupt``."""
        with self._changed:
            self._interrupted += 1
            self._changed.notify_all()

    def seize(self, box: Box, jobs: Sequence[Job], *, ttl: timedelta, left: bool = False) -> Hold | None:
        """Takes at once what ``push`` would queue, and with ``left`` what was left to expire; None where that is nothing."""
        with self._changed:
            lane = self._lane(box)
            if left:
                self._free_left(lane, jobs)
            free = self._sift(lane, jobs)
            if not free:
                return None
            empty = Hold(box, f"hold-{next(self._tokens)}", (), self._clock.monotonic() + ttl.total_seconds())
            return self._lease(lane, empty, free)

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        """Renews the leases of the hold's buckets and returns the buckets whose lease was lost."""
        with self._changed:
            lane = self._lane(hold.box)
            until = self._clock.monotonic() + ttl.total_seconds()
            lost = frozenset(bucket for bucket in hold.buckets if self._holder(lane, bucket) != hold.token)
            lane.leases.update(dict.fromkeys(hold.buckets - lost, (hold.token, until)))
        return lost

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Frees these leases, but for those wanted again: they stay as they are, with what is left of their time."""
        asked = frozenset(buckets)
        with self._changed:
            lane = self._lane(hold.box)
            own = {bucket for bucket in asked if self._holder(lane, bucket) == hold.token}
            kept = frozenset(own & lane.wanted)
            lane.wanted -= kept
            for bucket in own - kept:
                del lane.leases[bucket]
                lane.in_work.pop(bucket, None)
        return kept

    def hand_back(self, hold: Hold, jobs: Sequence[Job], *, when_long: WhenLong = WhenLong.QUEUE) -> bool:
        """Frees the leases of the hold's buckets and queues these jobs behind all others."""
        with self._changed:
            lane = self._lane(hold.box)
            too_long = when_long is not WhenLong.QUEUE and len(lane.elements) > self._longest
            if too_long and when_long is WhenLong.KEEP:
                return False
            for bucket in hold.buckets:
                if self._holder(lane, bucket) == hold.token:
                    del lane.leases[bucket]
                    lane.in_work.pop(bucket, None)
            if not too_long:
                self._enqueue(lane, jobs)
            return not too_long

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        """The leases of these buckets are to run out by themselves; nobody is to think that their holder died."""
        with self._changed:
            self._leave(self._lane(hold.box), hold, buckets)

    def give_way(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Leaves these buckets; returns those with which somebody else has finished, which stay."""
        asked = frozenset(buckets)
        with self._changed:
            lane = self._lane(hold.box)
            kept = frozenset(b for b in asked & lane.finished if self._holder(lane, b) == hold.token)
            lane.wanted -= kept
            lane.finished -= kept
            self._leave(lane, hold, asked - kept)
        return kept

    def finish(self, box: Box, jobs: Sequence[Job]) -> None:
        """Somebody has finished with these buckets, on which it worked without leases."""
        with self._changed:
            lane = self._lane(box)
            free = self._free_left(lane, jobs)
            busy = {job.bucket for job in jobs if self._holder(lane, job.bucket) is not None}
            lane.wanted |= busy
            lane.finished |= busy
            self._enqueue(lane, free)

    def unattended(self, box: Box, buckets: Iterable[int]) -> list[int]:
        """The buckets among these that are neither in work nor queued; ascending."""
        with self._changed:
            lane = self._lane(box)
            return [b for b in sorted(buckets) if b not in lane.queued and self._holder(lane, b) is None]

    def in_work(self, box: Box) -> frozenset[int]:
        """The buckets whose last holder has not released them, whether it works on them or died."""
        with self._changed:
            return frozenset(self._lane(box).in_work)

    def state(self, box: Box) -> QueueState:
        """Length and age of the box's queue; no age where the oldest element is no job."""
        with self._changed:
            elements = self._lane(box).elements
            oldest = _decode(elements[-1]) if elements else None
            return QueueState(len(elements), oldest.pushed_at if oldest else None)

    def ping(self) -> None:
        """Memory always answers."""

    def lose_leases(self, box: Box) -> None:
        """Forgets who works on which bucket, and nothing else: a replica that was behind has been promoted."""
        with self._changed:
            self._lane(box).leases.clear()

    def flush(self) -> None:
        """Forgets everything, as FLUSHALL does."""
        with self._changed:
            self._lanes.clear()

    def _lane(self, box: Box) -> _Lane:
        return self._lanes.setdefault(box.name, _Lane())

    def _holder(self, lane: _Lane, bucket: int) -> str | None:
        """Who holds the bucket's lease now."""
        token, until = lane.leases.get(bucket, (None, 0.0))
        return token if until > self._clock.monotonic() else None

    def _leave(self, lane: _Lane, hold: Hold, buckets: Iterable[int]) -> None:
        for bucket in buckets:
            if lane.in_work.get(bucket) == hold.token:
                del lane.in_work[bucket]

    def _free_left(self, lane: _Lane, jobs: Sequence[Job]) -> list[Job]:
        """Frees the leases that were left to expire; returns the jobs of these buckets."""
        left = [job for job in jobs if self._holder(lane, job.bucket) is not None and job.bucket not in lane.in_work]
        for job in left:
            lane.leases.pop(job.bucket, None)
        return left

    def _enqueue(self, lane: _Lane, jobs: Sequence[Job]) -> int:
        free = self._sift(lane, jobs)
        for job in free:
            lane.queued.add(job.bucket)
            lane.elements.appendleft(job.encode().encode())
        self._changed.notify_all()
        return len(free)

    def _sift(self, lane: _Lane, jobs: Sequence[Job]) -> list[Job]:
        """The jobs whose buckets are neither queued nor in work, one of each bucket; buckets in work are wanted again."""
        free: dict[int, Job] = {}
        for job in jobs:
            if self._holder(lane, job.bucket) is not None:
                lane.wanted.add(job.bucket)
            elif job.bucket not in lane.queued:
                free.setdefault(job.bucket, job)
        return list(free.values())

    def _lease(self, lane: _Lane, hold: Hold, jobs: Sequence[Job]) -> Hold:
        """The hold with these jobs, whose buckets nobody holds."""
        buckets = frozenset(job.bucket for job in jobs)
        orphaned = frozenset(bucket for bucket in buckets if lane.in_work.get(bucket) is not None)
        lane.leases.update(dict.fromkeys(buckets, (hold.token, hold.valid_until)))
        lane.in_work.update(dict.fromkeys(buckets, hold.token))
        lane.wanted -= buckets
        lane.finished -= buckets
        return replace(hold, jobs=tuple(jobs), buckets=buckets, orphaned=orphaned)

    def _first_with_jobs(self, boxes: Sequence[Box], wait: timedelta) -> Box | None:
        def look() -> Box | None:
            return next((box for box in boxes if self._lane(box).elements), None)

        if wait > timedelta(0):  # a timed wait asks the system for a lock even where there is nothing to wait for
            before = self._interrupted
            self._changed.wait_for(lambda: look() or self._interrupted > before, wait.total_seconds())
        return look()

    def _take_share(self, lane: _Lane, hold: Hold, share: int) -> tuple[Hold, list[bytes]]:
        """The hold with jobs: its share, or ids enough, or all there are. Also the elements that are no jobs of the box."""
        jobs_wanted = math.ceil(len(lane.elements) / max(1, share))
        taken, foreign = dict[int, Job](), list[bytes]()
        ids_taken = 0
        while lane.elements and len(taken) < jobs_wanted and ids_taken < self._enough_ids:
            element = lane.elements.pop()
            job = _decode(element)
            if job is None or job.bucket not in hold.box.buckets:
                foreign.append(element)
                continue
            lane.queued.discard(job.bucket)
            if self._holder(lane, job.bucket) is not None:
                lane.wanted.add(job.bucket)
            elif job.bucket not in taken:
                taken[job.bucket] = job
                ids_taken += len(job.ids)
        return self._lease(lane, hold, list(taken.values())), foreign


def _decode(element: bytes) -> Job | None:
    try:
        return Job.decode(element)
    except ValueError:
        return None
