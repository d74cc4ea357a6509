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


class Leases(Protocol):
    """Locks with a time limit. They save work; nothing depends on them for correctness."""

    def acquire(self, name: LeaseName, token: str, *, ttl: timedelta) -> bool:
        """True if nobody held it, or ``token`` already did; it then lasts for ``ttl`` from now."""

    def release(self, name: LeaseName, token: str) -> None:
        """Frees it if ``token`` holds it."""
