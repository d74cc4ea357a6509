"""What a caller says of a job that is to be created, as type checkers see it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict


class JobAttributes(TypedDict, total=False):
    """The keyword arguments of ``create_job`` besides the task."""

    args: Any
    """What JSON can hold; ``{}`` if left out."""
    idempotency_key: str | None
    """A second job with the same one is not stored: the id of the first comes back."""
    lock_key: str | None
    """Of all jobs of the box with the same one, one runs at a time."""
    partition_key: str
    """The application's own: kept, and not looked at."""
    priority: int
    """Lower goes first; 100 if left out."""
    available_at: datetime | None
    """Not before; with a zone."""
    delay: timedelta | float | None
    """Or not before so long after its creation, by the database's clock; a number is seconds."""
    max_attempts: int | None
    """The box's own if left out; so with ``lease_ttl``."""
    lease_ttl: timedelta | int | None
    """Whole seconds, 3 at least."""
    producer: str | None
    """Who creates it: the application's own, kept and not looked at. So with ``consumer_group``."""
    consumer_group: str | None


class NewJobAttributes(JobAttributes):
    """One job of ``create_jobs``."""

    task: str
