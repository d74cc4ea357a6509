"""Boxes of long jobs in the configuration."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from boxengine import AsyncJob, BatchJob, Contract, Int64, Job
from boxengine.domain.jobs import Executor
from boxengine.engine.jobs.batch_handler import BatchHandler
from boxengine.settings import notices
from tests.integration.jobs.handlers import ReportJob
from tests.unit.settings.folder import Folder

HERE = "tests.unit.settings.test_jobs"
NEVER_CALLED = "nobody calls it"


def good(job: Job[Any]) -> None:
    raise AssertionError(NEVER_CALLED)


def two(job: Job[Any], more: object) -> None:
    raise AssertionError(NEVER_CALLED)


async def coroutine(job: AsyncJob[Any]) -> None:
    raise AssertionError(NEVER_CALLED)


async def generator(job: AsyncJob[Any]) -> AsyncIterator[None]:
    yield


class WithHandle:
    def handle(self, job: Job[Any]) -> None:
        raise AssertionError(NEVER_CALLED)


class OfMany:
    def handle_batch(self, jobs: Sequence[BatchJob[Any]]) -> None:
        raise AssertionError(NEVER_CALLED)


class Both(WithHandle, OfMany):
    pass


class AsyncOfMany:
    async def handle_batch(self, jobs: Sequence[BatchJob[Any]]) -> None:
        raise AssertionError(NEVER_CALLED)


class OfNone:
    def handle_batch(self) -> None:
        raise AssertionError(NEVER_CALLED)


@pytest.mark.parametrize(
    ("written", "aging"), [("{}", timedelta(minutes=10)), ("{aging: PT1H}", timedelta(hours=1)), ("{aging: off}", None)]
)
def test_aging_has_a_default_and_can_be_turned_off(folder: Folder, written: str, aging: timedelta | None) -> None:
    assert folder.settings(f"job_items: {{a_job: {written}}}").job_items["a_job"].aging == aging


@pytest.mark.parametrize("written", ["0", "true", "never", "-5"])
def test_an_aging_that_is_no_time_is_refused(folder: Folder, written: str) -> None:
    problems = folder.problems(f"job_items: {{a_job: {{aging: {written}}}}}")
    assert "expected seconds (more than 0), or an ISO 8601 duration such as PT10S; or off" in str(problems)


def test_a_box_of_batches_has_their_size(folder: Folder) -> None:
    resolved = folder.resolved(f"job_items: {{report_job: {{tasks: {{a: {HERE}.OfMany}}, batch_size: 50}}}}")
    pipeline = resolved.jobs["report_job"]
    assert isinstance(pipeline.handlers["a"], BatchHandler)
    assert (pipeline.each, pipeline.box.batch_size) == (50, 50)


def test_mistakes_in_handlers_of_many_are_told_at_once(folder: Folder) -> None:
    problems = folder.problems(
        f"""
        job_items:
          first_job: {{tasks: {{a: {HERE}.Both, b: {HERE}.AsyncOfMany, c: {HERE}.OfNone}}, batch_size: 0}}
          second_job: {{tasks: {{a: {HERE}.OfMany, b: {HERE}.good}}}}
        """
    )
    assert {path: message.partition(";")[0].partition(",")[0] for path, message in problems.items()} == {
        "job_items.first_job.batch_size": "expected a whole number from 1 up",
        "job_items.first_job.tasks.a": f"{HERE}.Both has both handle and handle_batch",
        "job_items.first_job.tasks.b": f"{HERE}.AsyncOfMany.handle_batch is async def",
        "job_items.first_job.tasks.c": f"{HERE}.OfNone.handle_batch is called as (jobs)",
        "job_items.second_job.tasks": "a has handle_batch",
    }


def test_a_box_may_run_its_handlers_in_processes_which_load_them_by_their_paths(folder: Folder) -> None:
    tasks = f"{{a: {HERE}.good, b: {HERE}.WithHandle}}"
    pipeline = folder.resolved(f"job_items: {{report_job: {{executor: process, tasks: {tasks}}}}}").jobs["report_job"]
    assert pipeline.box.executor is Executor.PROCESS
    assert pipeline.paths == {"a": f"{HERE}.good", "b": f"{HERE}.WithHandle"}


def test_handlers_that_no_process_can_run_are_told_at_once(folder: Folder) -> None:
    problems = folder.problems(
        f"""
        job_items:
          first_job: {{executor: process, tasks: {{a: {HERE}.coroutine, b: {HERE}.OfMany, c: {HERE}.two}}}}
          second_job: {{executor: fiber}}
        """
    )
    assert problems == {
        "job_items.first_job.tasks.a": f"{HERE}.coroutine is async def; a process runs one plain handler: write def, or leave "
        "out executor: process",
        "job_items.first_job.tasks.b": f"{HERE}.OfMany.handle_batch takes many jobs, which needs threads; leave out executor: "
        "process, or write handle(job)",
        "job_items.first_job.tasks.c": problems["job_items.first_job.tasks.c"],
        "job_items.second_job.executor": "expected thread or process, got 'fiber'",
    }
    assert "is called as (job)" in problems["job_items.first_job.tasks.c"]


def test_a_box_has_its_handlers_and_its_policy(folder: Folder) -> None:
    resolved = folder.resolved(
        f"""
        owner: analytics
        job_items:
          report_job:
            tasks: {{a: {HERE}.good, b: {HERE}.WithHandle}}
            lease_ttl: 30
            retention: P2D
          import_job: {{}}
        """
    )
    pipeline = resolved.jobs["report_job"]
    box = pipeline.box
    assert (box.table, box.owner, box.concurrency, box.max_attempts) == ("report_jobs", "analytics", 2, 5)
    assert (box.lease_ttl, box.retention) == (timedelta(seconds=30), timedelta(days=2))
    assert pipeline.tasks == {"a", "b"}
    assert pipeline.handlers["a"] is good
    assert getattr(pipeline.handlers["b"], "__name__", None) == "handle"
    assert pipeline.each == 1
    assert [problem.path for problem in notices(resolved.settings)] == ["job_items.import_job.tasks"]


def test_a_model_gives_its_table(folder: Folder) -> None:
    model = "tests.integration.jobs.handlers.ReportJob"
    pipeline = folder.resolved(f"job_items: {{report_job: {{model: {model}}}}}").jobs["report_job"]
    assert (pipeline.model, pipeline.box.table) == (ReportJob, "report_jobs")


def test_a_schedule_has_its_zone_and_what_its_jobs_are_created_with(folder: Folder) -> None:
    resolved = folder.resolved(
        f"""
        job_items:
          report_job:
            tasks: {{a: {HERE}.good}}
            cron:
              nightly:
                {{schedule: "30 2 * * *", timezone: Europe/Berlin, task: a, args: {{of: sales}}, misfire: all, misfire_limit: 3}}
        """
    )
    (schedule,) = resolved.jobs["report_job"].schedules
    assert (schedule.name, schedule.rule, schedule.task) == ("nightly", "30 2 * * * Europe/Berlin", "a")
    assert (schedule.misfire, schedule.misfire_limit, schedule.attributes["args"]) == ("all", 3, {"of": "sales"})
    assert f"{schedule.next_after(datetime(2026, 7, 1, tzinfo=UTC)):%d %H:%M}" == "01 00:30"


def test_mistakes_in_schedules_are_told_at_once(folder: Folder) -> None:
    problems = folder.problems(
        f"""
        job_items:
          report_job:
            tasks: {{a: {HERE}.good}}
            cron:
              one: {{schedule: "61 * * * *", task: a}}
              two: {{schedule: "@daily", timezone: Mars/Olympus, task: a, misfire: perhaps}}
              three: {{schedule: "@daily", task: gone}}
              four: {{schedule: "@daily", task: a, lease_ttl: 1}}
              "a b": {{schedule: "@daily", task: a}}
              five: {{task: a}}
        """
    )
    found = {path.removeprefix("job_items.report_job.cron."): message for path, message in problems.items()}
    assert {path: message.partition(";")[0].partition(",")[0] for path, message in found.items()} == {
        "one.schedule": "expected 0 to 59 for the minute",
        "two.timezone": "expected a time zone such as Europe/Berlin",
        "two.misfire": "expected skip",
        "three.task": "no task 'gone'",
        "four": "box report_job: lease_ttl: expected whole seconds from 3 up",
        "a b": "not a schedule's name",
        "five.schedule": "missing: this key is required",
    }


@dataclass(frozen=True, kw_only=True)
class Mail(Contract):
    contract_id: ClassVar[int] = 7
    user: Int64


@dataclass(frozen=True, kw_only=True)
class Unknown(Contract):
    contract_id: ClassVar[int] = 8
    at: float


def test_a_task_has_its_contract_also_where_jobs_are_only_created(folder: Folder) -> None:
    text = f"job_items: {{report_job: {{tasks: {{a: {HERE}.good}}, contracts: {{a: {HERE}.Mail}}}}}}"
    assert folder.resolved(text).jobs["report_job"].contracts == {"a": Mail}


def test_mistakes_in_contracts_are_told_at_once(folder: Folder) -> None:
    problems = folder.problems(
        f"""
        job_items:
          report_job:
            tasks: {{a: {HERE}.good, b: {HERE}.good, c: {HERE}.good}}
            contracts: {{a: {HERE}.Mail, b: {HERE}.WithHandle, c: {HERE}.Unknown, d: {HERE}.Mail}}
            cron: {{one: {{schedule: "@daily", task: a, args: {{user: x}}}}}}
        """
    )
    found = {path.removeprefix("job_items.report_job."): message for path, message in problems.items()}
    assert {path: message.partition(";")[0].partition(",")[0] for path, message in found.items()} == {
        "contracts.b": f"{HERE}.WithHandle is no contract",
        "contracts.c": f"{HERE}.Unknown is no contract: field at: expected Int",
        "contracts.d": "no task 'd'",
        "cron.one.args": "Mail.user: expected int64",
    }


def test_all_mistakes_are_told_at_once(folder: Folder) -> None:
    problems = folder.problems(
        f"""
        outbox_items:
          order_outbox_item: {{transports: {{log: }}}}
        job_items:
          order_outbox_item: {{}}
          first_job: {{table: order_outbox_items, lease_ttl: 2, tasks: {{a: {HERE}.two, b: {HERE}.generator, c: {HERE}.gone}}}}
          second_job: {{lease_ttl: 4.5, model: {HERE}.WithHandle, concurency: 3}}
          Third: {{}}
        """
    )
    assert {path: message.partition(";")[0].partition(",")[0] for path, message in problems.items()} == {
        "job_items.order_outbox_item": "the name is used by another box too",
        "job_items.order_outbox_item.table": "works on table 'order_outbox_items'",
        "job_items.first_job.table": "works on table 'order_outbox_items'",
        "job_items.first_job.lease_ttl": "expected whole seconds from 3 up",
        "job_items.first_job.tasks.a": f"{HERE}.two is called as (job)",
        "job_items.first_job.tasks.b": f"{HERE}.generator is an async generator",
        "job_items.first_job.tasks.c": f"cannot import '{HERE}.gone': module '{HERE}' has no 'gone'",
        "job_items.second_job.concurency": "unknown key",
        "job_items.second_job.lease_ttl": "expected whole seconds from 3 up",
        "job_items.second_job.model": f"{HERE}.WithHandle is no SQLAlchemy model",
        "job_items.Third": "not a box name",
    }


@pytest.mark.parametrize("priority", ["yes", "1.5", "high", "99999999999"])
def test_the_priority_of_a_schedule_is_a_whole_number(folder: Folder, priority: str) -> None:
    schedule = f"{{schedule: '@daily', task: t, priority: {priority}}}"
    problems = folder.problems(f"job_items: {{a_job: {{tasks: {{t: json.dumps}}, cron: {{c: {schedule}}}}}}}")
    path = "job_items.a_job.cron.c.priority"
    assert list(problems) == [path]
    assert problems[path].startswith("expected a whole number from -2147483647 to 2147483647, got ")
