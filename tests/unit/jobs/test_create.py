"""What can be a job, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from boxengine.domain.jobs import AfterFailure
from boxengine.engine.attempt import reason_of
from boxengine.engine.jobs.create import JobCreator
from boxengine.errors import InvalidItem
from boxengine.ports.jobs import NewJob
from tests.unit.jobs.crew import BOX


class Kept:
    """``NewJobs`` that keeps what it is given."""

    def __init__(self) -> None:
        self.jobs: list[NewJob] = []

    def insert(self, session: Any, jobs: Sequence[NewJob]) -> list[int]:
        self.jobs += jobs
        return list(range(1, len(jobs) + 1))


def create(**attributes: Any) -> NewJob:
    kept = Kept()
    JobCreator(BOX, kept, tasks={"report", "export"}).create(None, [{"task": "report", **attributes}])
    return kept.jobs[0]


def test_what_is_left_out_is_the_boxs() -> None:
    job = create()
    assert (job.args, job.priority, job.max_attempts, job.lease_ttl) == ({}, 100, 3, timedelta(seconds=60))
    assert (job.lock_key, job.idempotency_key, job.partition_key, job.delay, job.available_at) == (
        None,
        None,
        "",
        None,
        None,
    )


def test_times_are_taken_as_seconds_or_spans() -> None:
    assert create(delay=1.5).delay == create(delay=timedelta(seconds=1.5)).delay == timedelta(seconds=1.5)
    assert create(lease_ttl=30).lease_ttl == create(lease_ttl=timedelta(seconds=30)).lease_ttl == timedelta(seconds=30)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert create(available_at=moment).available_at == moment


def test_each_job_that_is_waited_for_counts_once() -> None:
    job = create(after=[7, 3, 7], after_failure="run")
    assert (job.after, job.after_failure) == ((7, 3), AfterFailure.RUN)
    assert create().after == ()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"task": "reprt"}, "no task 'reprt'; known: export, report"),
        ({"lock": "k"}, "unknown attribute lock; did you mean lock_key? known: after, after_failure, args, "),
        ({"idempotncy_key": "k"}, "unknown attribute idempotncy_key; did you mean idempotency_key? known: after, "),
        ({"args": {1, 2}}, "args: expected what JSON can hold"),
        ({"args": float("inf")}, "args: expected what JSON can hold"),
        ({"args": {"on": date(2026, 1, 1)}}, "JSON can hold: ['on'] is of type date; give value.isoformat()"),
        ({"args": {"name": "a\0b"}}, "args: expected what JSON can hold: a text with NUL"),
        ({"delay": 1, "available_at": datetime(2026, 1, 1, tzinfo=UTC)}, "exclude each other"),
        ({"delay": -1}, "delay: expected"),
        ({"delay": True}, "delay: expected"),
        ({"delay": math.inf}, "delay: expected"),
        ({"delay": math.nan}, "delay: expected"),
        ({"delay": timedelta(days=36_501)}, "delay: expected a timedelta, or seconds, not below zero and not beyond"),
        (
            {"delay": "5m"},
            "delay: expected a timedelta, or seconds, not below zero and not beyond 36,500 days; got '5m'",
        ),
        (
            {"available_at": datetime.max.replace(tzinfo=UTC)},
            "available_at: expected a moment from 1000-01-02 to 9999-12-30",
        ),
        (
            {"available_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=5)))},
            "available_at: expected a moment",
        ),
        ({"available_at": "2026-01-01"}, "available_at: expected a datetime with a zone; got '2026-01-01'"),
        ({"task": ["report"]}, "no task ['report']; known: export, report"),
        ({"lease_ttl": math.inf}, "lease_ttl: expected"),
        ({"lease_ttl": math.nan}, "lease_ttl: expected"),
        ({"available_at": datetime(2026, 1, 1)}, "available_at: expected a datetime with a zone"),  # noqa: DTZ001
        ({"lease_ttl": 2}, "lease_ttl: expected whole seconds from 3 up"),
        ({"lease_ttl": 4.5}, "lease_ttl: expected whole seconds from 3 up"),
        ({"max_attempts": 0}, "max_attempts: expected a whole number from 1"),
        ({"priority": "high"}, "priority: expected a whole number"),
        ({"priority": 2**31}, "priority: expected a whole number"),
        ({"lock_key": ""}, "lock_key: expected text that is not empty"),
        ({"lock_key": "k" * 256}, "lock_key: expected text of at most 255"),
        ({"idempotency_key": 42}, "idempotency_key: expected text"),
        ({"lock_key": "half \ud83d"}, "lock_key: expected text of at most 255 characters, without NUL and halves"),
        ({"producer": "a\0b"}, "producer: expected text"),
        ({"after": 7}, "after: expected a list of jobs' ids"),
        ({"after": "7"}, "after: expected a list of jobs' ids"),
        ({"after": [0]}, "after: expected jobs' ids; got 0"),
        ({"after": [{"id": 7}]}, "after: expected jobs' ids; got {'id': 7}"),
        ({"after": [True]}, "after: expected jobs' ids; got True"),
        ({"after": [2**63]}, "after: expected jobs' ids"),
        ({"after": range(1, 1002)}, "after: 1001 jobs; expected 1000 at most"),
        ({"after_failure": "retry"}, "after_failure: expected cancel or run; got 'retry'"),
    ],
)
def test_what_cannot_be_a_job_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidItem, match="box report_job: ") as refused:
        create(**attributes)
    assert message in str(refused.value)


def test_arguments_that_json_cannot_hold_are_told_of_once_where_a_handler_creates_the_job() -> None:
    with pytest.raises(InvalidItem) as refused:
        create(args={"on": date(2026, 1, 1)})
    assert reason_of(refused.value).count("is of type date") == 1


def test_of_a_batch_with_a_mistake_nothing_is_inserted() -> None:
    kept = Kept()
    with pytest.raises(InvalidItem):
        JobCreator(BOX, kept, tasks={"report"}).create(None, [{"task": "report"}, {"task": "nope"}])
    assert kept.jobs == []


def test_a_batch_is_a_list_of_dicts() -> None:
    creator = JobCreator(BOX, Kept(), tasks={"report"})
    given: list[Any] = [{"task": "report"}, None]  # the list around it was forgotten; a function returned nothing
    for batch, said in zip(given, ("'task'", "None"), strict=True):
        with pytest.raises(
            InvalidItem, match=f"expected a list of dicts, one with the attributes of each job; got {said}"
        ):
            creator.create(None, batch)
