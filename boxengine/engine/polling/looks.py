"""A look: reads one partition's due rows and queues one job for each bucket."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from boxengine.domain.box import Box
from boxengine.domain.item_id import ItemId
from boxengine.domain.job import Job
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.polling.tasks import Look
from boxengine.engine.timing import TIMING
from boxengine.ports import Clock, PendingRow, Store

MOST_IDS = 1_000
"""Of one job. Its holder reads the bucket again anyway, and a take drops an element that is too long to be a job."""
QueueJobs = Callable[[Box, Sequence[Job]], int]
"""Queues each job whose bucket is neither queued nor in progress; returns how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollLimits:
    """How much one poll takes."""

    regular: int = 200
    """Rows that never failed."""
    retryable: int = 100
    """Rows that failed before."""
    lease_ttl: timedelta = timedelta(seconds=TIMING.lease)
    """How long a partition's lease lasts."""
    take_wait: float = 1.0
    """Seconds that a turn waits for a task."""


LIMITS = PollLimits()


class Polled(NamedTuple):
    """The result of a poll."""

    found: int
    """How many rows are due, or how many buckets writers have named."""
    pushed: int
    """How many jobs were queued."""
    new: bool = False
    """Whether at least one of the rows has never failed."""


class Looks:
    """Reads due rows and queues their buckets. Shared by threads."""

    def __init__(
        self, schedule: Schedule, *, store: Store, queue_jobs: QueueJobs, clock: Clock, limits: PollLimits
    ) -> None:
        self._schedule = schedule
        self._store = store
        self._queue_jobs = queue_jobs
        self._clock = clock
        self._limits = limits

    def queue_due(self, task: Look) -> Polled:
        """Reads one partition; queues each of its buckets with due rows that is neither queued nor in progress."""
        rows = self._rows(task.box, task.partition)
        pushed = self._queue_jobs(task.box, self._jobs(rows)) if rows else 0
        return Polled(len(rows), pushed, new=any(row.errors_count == 0 for row in rows))

    def _rows(self, box: Box, partition: int) -> Sequence[PendingRow]:
        """Due rows: at most ``regular`` that never failed, and at most ``retryable`` that did."""
        limits = self._limits
        buckets = box.partition(partition, self._schedule.partitions(box))
        rows = self._store.poll(box, buckets, limits.regular + limits.retryable)
        regular = _fair([row for row in rows if row.errors_count == 0], limits.regular)
        retryable = _fair([row for row in rows if row.errors_count > 0], limits.retryable)
        if len(retryable) >= limits.retryable and not regular:
            regular = self._store.poll_regular(box, buckets, limits.regular)
        return [*regular, *retryable]

    def _jobs(self, rows: Sequence[PendingRow]) -> list[Job]:
        ids: Mapping[int, list[ItemId]] = defaultdict(list)
        for row in rows:
            ids[row.bucket].append(row.id)
        now = int(self._clock.now().timestamp())
        return [Job(bucket, now, tuple(sorted(found)[:MOST_IDS])) for bucket, found in ids.items()]


def _fair(rows: Sequence[PendingRow], limit: int) -> Sequence[PendingRow]:
    """About ``limit`` of the rows, at least one of each bucket: a bucket left out here would wait for the next check."""
    if len(rows) <= limit:
        return rows
    firsts = {row.bucket: row for row in reversed(rows)}
    chosen = set(firsts.values())
    others = (row for row in rows if row not in chosen)
    return sorted([*chosen, *islice(others, max(0, limit - len(chosen)))])
