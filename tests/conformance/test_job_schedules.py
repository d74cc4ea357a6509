"""The contract of ``Schedules``, over memory, PostgreSQL and MariaDB, with the scheduler that uses it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.adapters.memory.schedules import MemorySchedules
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.adapters.sql.jobs.schedules import SqlSchedules
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.domain.cron import Cron
from boxengine.domain.schedules import Misfire, Schedule
from boxengine.engine.jobs.create import JobChecks
from boxengine.engine.jobs.scheduler import LONGEST, Scheduler
from boxengine.ports.jobs import JobDesk, JobFilter
from boxengine.ports.schedules import Schedules
from tests.conformance.conftest import SERVERS
from tests.conformance.jobs import BOX, NAMES
from tests.conftest import ServerLookup

HOUR = 3600.0


class Fleet:
    """Two workers' schedulers over one store."""

    def __init__(self, stores: tuple[Schedules, Schedules], desk: JobDesk) -> None:
        self.stores = stores
        self.desk = desk
        # Half an hour from now, so that no test meets it on the way.
        self._minute = (stores[0].known(BOX).now.minute + 30) % 60

    def scheduler(self, *, worker: int = 0, minutes: int = 0, rule: str | None = None) -> Scheduler:
        """With one schedule of every hour, so many minutes from the usual one, or of another rule."""
        schedule = Schedule(
            name="hourly",
            cron=Cron.parse(rule or f"{(self._minute + minutes) % 60} * * * *"),
            task="report",
            misfire=Misfire.ALL,
            attributes={"args": {"of": "sales"}, "lock_key": "sales"},
        )
        return Scheduler(BOX, [schedule], store=self.stores[worker], checks=JobChecks(BOX, tasks=["report"]))

    def jobs(self) -> list[Any]:
        """The oldest first."""
        return list(self.desk.list(BOX, JobFilter(), limit=1000))[::-1]

    def handled_until(self) -> datetime:
        return self.stores[0].known(BOX).handled_until["hourly"]

    def set_back(self, seconds: float) -> None:
        """Lets the schedule have been looked at so long ago, or, below zero, ahead: as after a jump of the clock."""
        raise NotImplementedError


class MemoryFleet(Fleet):
    def __init__(self) -> None:
        self.clock = ManualClock()
        jobs = MemoryJobs(self.clock)
        store = MemorySchedules(jobs, self.clock)
        super().__init__((store, store), jobs)

    def set_back(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


class SqlFleet(Fleet):
    def __init__(self, url: str, stack: ExitStack) -> None:
        self.engines = [connect(url, connections=3) for _ in range(2)]
        for engine in self.engines:
            stack.callback(engine.dispose)
        schema.create(self.engines[0], [BOX], {})
        jobs = [SqlJobs(engine) for engine in self.engines]
        super().__init__((SqlSchedules(jobs[0]), SqlSchedules(jobs[1])), SqlJobDesk(jobs[0]))

    def set_back(self, seconds: float) -> None:
        postgres = self.engines[0].dialect.name == "postgresql"
        span = f"interval '{seconds} seconds'" if postgres else f"INTERVAL {seconds} SECOND"
        with self.engines[0].begin() as connection:
            connection.execute(sa.text(f"UPDATE report_jobs_schedules SET handled_until = handled_until - {span}"))


@pytest.fixture(params=NAMES)
def fleet(request: pytest.FixtureRequest, server_lookup: ServerLookup) -> Iterator[Fleet]:
    if request.param == "memory":
        yield MemoryFleet()
        return
    fresh, server = SERVERS[request.param]
    with ExitStack() as stack:
        yield SqlFleet(stack.enter_context(fresh(server_lookup(server).address)), stack)


def test_a_new_schedule_begins_now_and_comes_back_by_its_next_run(fleet: Fleet) -> None:
    assert timedelta(0) < fleet.scheduler().turn() <= LONGEST
    assert fleet.jobs() == []


def test_a_run_is_a_job_like_others_with_its_time_in_its_key(fleet: Fleet) -> None:
    fleet.scheduler().turn()
    fleet.set_back(HOUR)
    fleet.scheduler().turn()
    (job,) = fleet.jobs()
    assert (job["task"], job["args"], job["lock_key"]) == ("report", {"of": "sales"}, "sales")
    assert (job["status"], job["waits"], job["producer"]) == ("queued", 0, "cron hourly")
    moment = datetime.fromisoformat(job["idempotency_key"].removeprefix("cron hourly "))
    assert (moment.tzinfo, moment.second, moment.microsecond) == (UTC, 0, 0)


def test_each_run_is_created_once_by_whichever_worker_looks_first(fleet: Fleet) -> None:
    fleet.scheduler().turn()
    fleet.set_back(5 * HOUR)
    for worker in (0, 1, 0):
        fleet.scheduler(worker=worker).turn()
    assert len({job["idempotency_key"] for job in fleet.jobs()}) == len(fleet.jobs()) == 5


def test_workers_that_look_at_the_same_moment_create_each_run_once(fleet: Fleet) -> None:
    together, errors = threading.Barrier(2), list[BaseException]()

    def look(worker: int) -> None:
        try:
            together.wait(30)
            fleet.scheduler(worker=worker).turn()
        except BaseException as error:
            errors.append(error)

    for _ in ("a schedule that is new to both", "five runs that are due"):
        threads = [threading.Thread(target=look, args=(worker,), name=f"worker {worker}") for worker in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        fleet.set_back(5 * HOUR)
    assert errors == []
    assert len({job["idempotency_key"] for job in fleet.jobs()}) == len(fleet.jobs()) == 5


def test_a_changed_schedule_begins_anew(fleet: Fleet) -> None:
    fleet.scheduler().turn()
    fleet.set_back(5 * HOUR)
    fleet.scheduler(minutes=5).turn()
    fleet.scheduler(minutes=5).turn()
    assert fleet.jobs() == []


def test_while_workers_with_an_old_and_a_new_rule_run_beside_each_other_no_run_is_lost(fleet: Fleet) -> None:
    fleet.scheduler().turn()
    fleet.set_back(HOUR)
    fleet.scheduler(rule="* * * * *").turn()
    assert len(fleet.jobs()) == 1, "of the last minute; those before count as handled"
    fleet.scheduler(worker=1).turn()
    fleet.scheduler(rule="* * * * *").turn()
    assert len({job["idempotency_key"] for job in fleet.jobs()}) == len(fleet.jobs())


def test_a_run_is_not_lost_to_a_worker_with_another_rule_that_looks_just_after_its_time(fleet: Fleet) -> None:
    fleet.scheduler(rule="* * * * *").turn()
    fleet.set_back(HOUR)
    fleet.scheduler(worker=1).turn()
    assert fleet.jobs() == []
    fleet.scheduler(rule="* * * * *").turn()
    assert len(fleet.jobs()) == 1, "that of the last minute"


def test_a_clock_that_is_set_back_neither_stops_a_schedule_nor_repeats_its_runs(fleet: Fleet) -> None:
    fleet.scheduler().turn()
    fleet.set_back(3 * HOUR)
    fleet.scheduler().turn()
    before = fleet.handled_until()
    made = len(fleet.jobs())
    fleet.set_back(-2 * HOUR)
    fleet.scheduler().turn()
    assert len(fleet.jobs()) == made
    assert fleet.handled_until() <= before + timedelta(minutes=5)
    # The same two hours once more: their runs are known by their keys.
    fleet.set_back(2 * HOUR)
    fleet.scheduler().turn()
    assert len(fleet.jobs()) == made


def test_nothing_is_known_of_a_schedule_that_nobody_has_looked_at(fleet: Fleet) -> None:
    known = fleet.stores[1].known(BOX)
    assert known.handled_until == {}
    assert known.now.tzinfo is not None
