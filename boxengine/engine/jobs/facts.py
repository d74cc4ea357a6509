"""What a handler can know of its job, wherever it runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic

from typing_extensions import TypeVar

from boxengine.domain.jobs import ClaimedJob
from boxengine.domain.schedules import scheduled_at

A = TypeVar("A", default=Any)


class JobFacts(Generic[A]):
    """The part of a job that does not change while it runs."""

    def __init__(self, box_name: str, job: ClaimedJob) -> None:
        self._box_name = box_name
        self._job = job

    @property
    def id(self) -> int:
        return self._job.id

    @property
    def box_name(self) -> str:
        return self._box_name

    @property
    def task(self) -> str:
        return self._job.task

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._job.attempt

    @property
    def max_attempts(self) -> int:
        return self._job.max_attempts

    @property
    def lock_key(self) -> str | None:
        return self._job.lock_key

    @property
    def partition_key(self) -> str:
        return self._job.partition_key

    @property
    def idempotency_key(self) -> str | None:
        return self._job.idempotency_key

    @property
    def scheduled_at(self) -> datetime | None:
        """The time of the schedule at which it was due, in UTC; None: no ``cron`` has created it."""
        return scheduled_at(self.idempotency_key)

    @property
    def created_at(self) -> datetime | None:
        return self._job.created_at

    @property
    def previous_start(self) -> datetime | None:
        """When a worker took the job for the attempt before this one, in UTC; None in the first attempt."""
        return self._job.previous_start

    @property
    def token(self) -> int:
        """Rises with every claim of this job. A receiver that remembers the highest it has seen can refuse a worker that was
        suspended and does not know yet that the job is another's."""
        return self._job.token
