"""The attributes that a caller passes to create a job, typed for type checkers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, TypedDict


class JobAttributes(TypedDict, total=False):
    """The keyword arguments of ``create_job`` except the task."""

    args: Any
    """A JSON value; ``{}`` if omitted."""
    idempotency_key: str | None
    """A second job with the same key is not stored: the call returns the id of the first."""
    lock_key: str | None
    """Of all the box's jobs with the same key, one runs at a time."""
    partition_key: str
    """For the application's own use: stored, but not evaluated."""
    priority: int
    """Lower goes first; 100 if omitted."""
    available_at: datetime | None
    """The job does not start before this moment, which has a time zone."""
    delay: timedelta | float | None
    """Instead of ``available_at``: the earliest start, counted from its creation by the database's clock; a number is seconds."""
    after: Sequence[int]
    """Ids of jobs of the same box that must have succeeded before this one starts."""
    after_failure: str
    """When one of those fails finally, is canceled or lost: ``cancel`` this job, the default, or ``run`` it all the same."""
    max_attempts: int | None
    """The box's own if omitted, as for ``lease_ttl``."""
    lease_ttl: timedelta | int | None
    """Whole seconds, at least 3."""
    producer: str | None
    """Who creates it, for the application's own use: stored, but not evaluated. The same holds for ``consumer_group``."""
    consumer_group: str | None


class NewJobAttributes(JobAttributes):
    """One job of ``create_jobs``."""

    task: str
