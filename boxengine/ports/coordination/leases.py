"""Locks with a time limit, each on one duty that one worker at a time performs for a box."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol


class Duty(StrEnum):
    """A duty that one worker at a time has for a box, or for one partition of it."""

    POLLING = "polling"
    RETENTION = "retention"
    BACKLOG = "backlog"
    """Measuring how far behind the box is."""


class LeaseName(NamedTuple):
    """Identifies a lease. The adapter decides how to spell it."""

    duty: Duty
    box: str
    partition: int | None = None
    """None: the whole box."""
    of: int | None = None
    """How many partitions the worker has divided the box into; None: not told, as by workers of sbmt-outbox."""


class Leases(Protocol):
    """Locks with a time limit. They save work; nothing depends on them for correctness.

    Workers that divide a box into different numbers of partitions mean different buckets by one of the same number. So a lease
    ``of`` another number is in nobody's way: the box's buckets may be polled twice, and none is left out.
    """

    def acquire(self, name: LeaseName, token: str, *, ttl: timedelta) -> bool:
        """True if nobody held it, or ``token`` already did; it then lasts for ``ttl`` from now.

        True also where somebody else holds it ``of`` another number of partitions.
        """

    def release(self, name: LeaseName, token: str) -> None:
        """Frees it if ``token`` holds it."""
