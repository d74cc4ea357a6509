"""The keys of ``job_items.NAME`` and of ``jobs``: long jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import Field

from boxengine.domain.jobs import Executor, JobBox
from boxengine.domain.names import default_table
from boxengine.domain.schedules import Misfire, Schedule
from boxengine.settings.boxes import Section
from boxengine.settings.values.choices import ExecutorKind, MisfireKind
from boxengine.settings.values.numbers import Count, CountOrZero, Priority
from boxengine.settings.values.texts import Text
from boxengine.settings.values.times import CronText, Duration, Seconds, SecondsOrOff, SecondsOrZero, ZoneName


class ScheduleSettings(Section):
    """One schedule of a box."""

    schedule: CronText
    """Five fields as in crontab (minute, hour, day of the month, month, day of the week), or ``@daily`` and the like."""
    task: Text
    """Which of the box's tasks."""
    timezone: ZoneName = "UTC"
    """Whose local time the fields mean."""
    misfire: MisfireKind = Misfire.ONCE
    """Runs whose time came while no worker was there: ``skip`` leaves them out, ``once`` creates the latest, ``all`` all."""
    misfire_grace: SecondsOrZero = timedelta(seconds=60)
    """A run that is created no later than this is on time; less than five seconds count as five."""
    misfire_limit: Count = 100
    """Runs that are created at once, at most, also of those within ``misfire_grace``; earlier ones are left out."""
    args: Any = None
    """What the jobs are created with; so with the keys below. Left out: as ``create_job`` has it."""
    lock_key: Text | None = None
    priority: Priority = 100
    max_attempts: Count | None = None
    lease_ttl: Seconds | None = None

    def plan(self, name: str) -> Schedule:
        """This section as a schedule of the engine."""
        attributes = ("args", "lock_key", "priority", "max_attempts", "lease_ttl")
        return Schedule(
            name=name,
            cron=self.schedule,
            zone=UTC if self.timezone == "UTC" else ZoneInfo(self.timezone),
            zone_name=self.timezone,
            task=self.task,
            misfire=self.misfire,
            misfire_limit=self.misfire_limit,
            misfire_grace=self.misfire_grace,
            attributes={each: getattr(self, each) for each in attributes},
        )


class JobBoxSettings(Section):
    """One box of jobs."""

    model: Text | None = None
    """Dotted path of a model class; left out, the engine makes one over ``table``."""
    table: Text | None = None
    """Left out: the model's, or the box's name in the plural."""
    owner: Text | None = None
    tasks: Mapping[str, Text] = Field(default_factory=dict)
    """Task name -> dotted path of its handler: a function, or a class with a method ``handle`` or ``handle_batch``."""
    contracts: Mapping[str, Text] = Field(default_factory=dict)
    """Task name -> dotted path of the contract that its arguments follow, as ``boxengine new contract`` makes it."""
    cron: Mapping[str, ScheduleSettings] = Field(default_factory=dict)
    """Schedule name -> jobs that are created again and again."""
    concurrency: Count = 2
    """Jobs that one worker runs at once, each in a thread or a process; batches, where handlers take them."""
    weight: Count = 1
    """Turns that it has of ``jobs.shared_threads``, compared with boxes that are as far behind."""
    batch_size: Count = 10
    """Jobs that one call of ``handle_batch`` gets at most."""
    max_attempts: Count = 5
    """Of jobs that do not say otherwise; so with ``lease_ttl``."""
    lease_ttl: Seconds = timedelta(seconds=60)
    """After so long without a heartbeat a job is taken away from its worker. Whole seconds, 3 at least."""
    retry_interval: SecondsOrZero = timedelta(seconds=30)
    """The pause after a failed attempt, times the attempt's number."""
    aging: SecondsOrOff = timedelta(minutes=10)
    """One of ten claimed jobs is the one that has waited longest, if it has waited for longer than this; ``off``: none is."""
    executor: ExecutorKind = Executor.THREAD
    """Where handlers run: ``thread``, or ``process``: in child processes, for work that computes, killed at their ``timeout``."""
    timeout: Seconds | None = None
    """An attempt that takes longer is stopped, and has failed; left out, there is no limit."""
    retention: Duration = timedelta(weeks=1)
    """How long finished jobs stay."""
    deletion_batch_size: Count = 1000

    def table_for(self, name: str) -> str:
        """The table of the box of this name, where no model says otherwise."""
        return self.table or default_table(name)

    def box(self, name: str, *, table: str, owner: str | None) -> JobBox:
        """This section as a box of the engine."""
        return JobBox(
            name=name,
            table=table,
            owner=owner,
            concurrency=self.concurrency,
            weight=self.weight,
            batch_size=self.batch_size,
            max_attempts=self.max_attempts,
            lease_ttl=self.lease_ttl,
            retry_interval=self.retry_interval,
            aging=self.aging,
            timeout=self.timeout,
            executor=self.executor,
            retention=self.retention,
            deletion_batch_size=self.deletion_batch_size,
        )


class JobsSettings(Section):
    """How workers look after long jobs."""

    heartbeat: Seconds = timedelta(seconds=10)
    """Between two signs of life; of a job with a short lease a third of that. Where no wake-up arrives, it tells of a cancel."""
    reaper_period: Seconds = timedelta(seconds=10)
    """Between two looks for silent workers, at most: the reaper comes when the next lease ends."""
    poll_interval: Seconds = timedelta(seconds=1)
    """Between two looks for new jobs while threads are idle."""
    shared_threads: CountOrZero = 0
    """Threads of a process that belong to no box: they go where jobs wait."""
