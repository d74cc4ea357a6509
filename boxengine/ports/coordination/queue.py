"""The job queue: which thread should try to work on which bucket."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Protocol

from boxengine.domain.box import Box
from boxengine.domain.job import Job


class WhenLong(Enum):
    """What becomes of buckets that are handed back to a queue so long that polls wait.

    If they were always queued, the buckets in the queue would take turns among themselves, and no other bucket would get into it.
    """

    QUEUE = "queue"
    """They are queued all the same."""
    FREE = "free"
    """Their leases are freed, and a poll must find their rows."""
    KEEP = "keep"
    """Nothing changes: they stay with their holder."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Buckets of one box that one processor thread has taken from the queue, with a time limit.

    A hold says who should try to work on a bucket, never who may: the claim decides that. It is an immutable value: when the
    queue reports lost or freed leases, whoever took the hold makes a new one from the buckets that are left.
    """

    box: Box
    token: str
    """Random; needed to free and extend the leases. Empty where the queue has not been asked for any."""
    jobs: tuple[Job, ...]
    valid_until: float
    """Seconds of ``Clock.monotonic``."""
    buckets: frozenset[int] = frozenset()
    orphaned: frozenset[int] = frozenset()
    """The buckets whose last holder never released them; as far as is known, it died while it held them."""

    @property
    def leased(self) -> bool:
        """Whether the queue was asked for the leases of these buckets."""
        return bool(self.token)


@dataclass(frozen=True, slots=True)
class QueueState:
    """How long one box's queue is, and when its oldest job was pushed (unix seconds)."""

    length: int
    oldest_pushed_at: int | None


class JobQueue(Protocol):
    """Jobs of all boxes: at most one for each bucket, either queued or being worked on under a lease.

    May lose anything at any time without harm: rows stay pending and are polled again. Every method raises
    ``QueueUnavailable`` if the server does not answer.
    """

    def push(self, box: Box, jobs: Sequence[Job]) -> int:
        """Queues each job whose bucket is neither queued nor being worked on; returns how many.

        A bucket that is being worked on is marked as wanted again, so that its holder looks once more before it releases it.
        """

    def take(self, boxes: Sequence[Box], *, wait: timedelta, ttl: timedelta, share: int) -> Hold | None:
        """Waits up to ``wait`` for a job of any of the boxes, then takes more of the same box, with their leases.

        It takes the queue's length divided by ``share`` (the number of competing threads), but at least one. Jobs whose bucket
        is leased elsewhere are dropped, and so are elements that are no jobs of the box. None if it took nothing.
        The leases last for ``ttl``.
        """

    def interrupt(self) -> None:
        """Lets takes that wait in this process return soon. Raises nothing: they return by themselves when their time is over."""

    def seize(self, box: Box, jobs: Sequence[Job], *, ttl: timedelta, left: bool = False) -> Hold | None:
        """Takes at once what ``push`` would queue, for a thread that is ready; None if that is nothing.

        Returns and marks the same as a push followed by a take, in one call. With ``left``, leases that somebody has left
        to expire count as free.
        """

    def extend(self, hold: Hold, *, ttl: timedelta) -> frozenset[int]:
        """Renews the leases of the hold's buckets for ``ttl`` from now and returns the buckets whose lease was lost."""

    def release(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Frees the leases of these buckets; returns those wanted again, whose leases stay but are not prolonged."""

    def hand_back(self, hold: Hold, jobs: Sequence[Job], *, when_long: WhenLong = WhenLong.QUEUE) -> bool:
        """Frees the leases of the hold's buckets and queues these jobs behind all others, so that others get their turn.

        Returns False where it has not done so because the queue is so long that polls wait, see ``when_long``.
        """

    def leave(self, hold: Hold, buckets: Iterable[int]) -> None:
        """Lets the leases of these buckets expire by themselves, without their holder being treated as dead."""

    def give_way(self, hold: Hold, buckets: Iterable[int]) -> frozenset[int]:
        """Like ``leave``, for buckets that the database refused because somebody works on them without a lease.

        Returns those of which ``finish`` has told since they were taken: their leases stay, and they are to be read at once.
        """

    def finish(self, box: Box, jobs: Sequence[Job]) -> None:
        """Somebody has finished with the buckets of these jobs, on which it worked without leases.

        Of those that others have taken meanwhile, the ones in work are wanted again. The ones whose leases were left to expire
        are free, and their jobs are queued: the database had refused them, or somebody could not send their items.
        """

    def unattended(self, box: Box, buckets: Iterable[int]) -> list[int]:
        """The buckets among these that nobody works on and that, as far as is known, are not queued; ascending."""

    def in_work(self, box: Box) -> frozenset[int]:
        """The buckets whose last holder has not released them, whether it works on them or died while it held them."""

    def state(self, box: Box) -> QueueState:
        """Length and age of the box's queue."""

    def ping(self) -> None:
        """Returns if the server answers and takes jobs."""
