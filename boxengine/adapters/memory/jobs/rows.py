"""A job in memory, and what it looks like to workers and to people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from boxengine.domain.jobs import (
    AfterFailure,
    ClaimedJob,
    EventKind,
    JobState,
    Waits,
)


@dataclass(slots=True, kw_only=True)
class Row:
    """One job."""

    id: int
    task: str
    args: Any
    available_at: datetime
    created_at: datetime
    max_attempts: int
    lease_ttl: timedelta
    priority: int = 100
    idempotency_key: str | None = None
    lock_key: str | None = None
    partition_key: str = ""
    producer: str | None = None
    consumer_group: str | None = None
    trace_context: Mapping[str, str] | None = None
    status: JobState = JobState.QUEUED
    waits: Waits = Waits.NOTHING
    attempt: int = 0
    token: int = 0
    worker: str | None = None
    lease_expires_at: datetime | None = None
    heartbeat_at: datetime | None = None
    cancel_requested: bool = False
    progress: Any = None
    checkpoint: Any = None
    result: Any = None
    error: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    after: dict[int, bool] = field(default_factory=dict)
    """The jobs that it was created after, and whether it still waits for them."""
    after_failure: AfterFailure = AfterFailure.CANCEL
    events: list[tuple[datetime, EventKind, Any]] = field(default_factory=list)


def order(row: Row) -> tuple[int, int]:
    return row.priority, row.id


def claimed(row: Row, *, for_age: bool) -> ClaimedJob:
    picked = (each for each in reversed(row.events) if each[1] is EventKind.PICKED)
    return ClaimedJob(
        id=row.id,
        token=row.token,
        task=row.task,
        args=row.args,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        lease_ttl=row.lease_ttl,
        priority=row.priority,
        idempotency_key=row.idempotency_key,
        lock_key=row.lock_key,
        partition_key=row.partition_key,
        checkpoint=row.checkpoint,
        created_at=row.created_at,
        trace_context=row.trace_context,
        previous_start=next((moment for moment, _, told in picked if told["attempt"] == row.attempt - 1), None),
        for_age=for_age,
    )


def mapping(row: Row) -> dict[str, Any]:
    names = (name for name in Row.__slots__ if name != "events")
    return {name: getattr(row, name) for name in names} | {"status": str(row.status), "waits": int(row.waits)}
