"""The job queue: who should bother to work on which bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from boxengine.domain.box import Box
from boxengine.domain.job import Job


@dataclass(frozen=True, slots=True)
class Hold:
    """Buckets of one box that one processor thread has taken from the queue, with a time limit.

    A hold says who should bother to work on a bucket, never who may: that is the claim's business. It is a value: the
    queue says what became of leases, and whoever took the hold makes another one of what is left.
    """

    box: Box
    token: str
    """Random; what a lease is freed and extended by."""
    jobs: tuple[Job, ...]
    valid_until: float
    """Seconds of ``Clock.monotonic``."""
    buckets: frozenset[int] = frozenset()
    orphaned: frozenset[int] = frozenset()
    """Those whose last holder never let go of them: it died with them, as far as is known."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """How long one box's queue is, and when its oldest job was pushed (unix seconds)."""

    length: int
    oldest_pushed_at: int | None


class JobQueue(Protocol):
    """Jobs of all boxes, at most one per bucket queued or in work.

    May lose anything at any time without harm: rows stay pending and are polled again. Every method raises
    ``QueueUnavailable`` where the server does not answer.
    """

    def push(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor in work; returns how many.

        A bucket in work is marked as wanted again, so that its holder looks once more before it lets go.
        """

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        """Waits up to ``wait`` for a job of any of the boxes, then takes more of the same box, with their leases.

        How many: the queue's length divided by ``share`` (threads that compete), at least one. Jobs whose bucket is
        leased elsewhere are dropped, foreign elements too (``corrupt``); None where nothing came of it.
        The leases last for ``ttl``.
        """

    def seize(self, box: Box, jobs: Sequence[Job], *, ttl: timedelta) -> Hold | None:
        """Takes at once what ``push`` would queue, for a thread that stands ready; None where that is nothing.

        Says and marks the same as a push followed by a take, in one call.
        """

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        """Renews the leases of the hold's buckets for ``ttl`` from now and returns the buckets whose lease was lost."""

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Frees the leases of these buckets; returns those wanted again, whose leases stay and are not prolonged."""

    def hand_back(self, hold: Hold, jobs: Sequence[Job]) -> None:
        """Frees the leases of the hold's buckets and queues these jobs behind all others, so that others get their turn."""

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        """Lets the leases of these buckets expire by themselves, without their holder being treated as dead."""

    def unattended(self, box: Box, buckets: Iterable[int]) -> list[int]:
        """Those of the buckets that are neither in work nor, as far as is known, queued; ascending."""

    def state(self, box: Box) -> QueueState:
        """Length and age of the box's queue."""

    def ping(self) -> None:
        """Returns if the server answers."""
