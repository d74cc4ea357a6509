"""Which runs of a schedule are created, above all those whose time came while no worker was there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.adapters.memory.schedules import MemorySchedules
from boxengine.domain.cron import Cron
from boxengine.domain.jobs import JobBox
from boxengine.domain.schedules import Misfire, Schedule, scheduled_at
from boxengine.engine.jobs.create import JobChecks
from boxengine.engine.jobs.scheduler import Scheduler
from boxengine.errors import StoreConflict
from boxengine.ports.jobs import JobFilter

NOON = datetime(2026, 1, 10, 12, 0, tzinfo=UTC)
BOX = JobBox(name="report_job", table="report_jobs")


def due(misfire: Misfire, *, last: datetime, now: datetime, cron: str = "0 * * * *", limit: int = 100) -> list[str]:
    schedule = Schedule(name="hourly", cron=Cron.parse(cron), task="t", misfire=misfire, misfire_limit=limit)
    return [f"{run:%d %H:%M}" for run in schedule.due(last, now)]


@pytest.mark.parametrize("misfire", Misfire)
def test_a_run_whose_time_has_just_come_is_created_whatever_becomes_of_missed_ones(misfire: Misfire) -> None:
    assert due(misfire, last=NOON - timedelta(minutes=30), now=NOON) == ["10 12:00"]
    assert due(misfire, last=NOON, now=NOON + timedelta(minutes=30)) == []


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [
        (Misfire.SKIP, []),
        (Misfire.ONCE, ["10 12:00"]),
        (Misfire.ALL, ["10 09:00", "10 10:00", "10 11:00", "10 12:00"]),
    ],
)
def test_missed_runs_are_left_out_or_made_up_for(misfire: Misfire, expected: list[str]) -> None:
    assert due(misfire, last=NOON - timedelta(hours=4), now=NOON + timedelta(minutes=30)) == expected


def test_a_run_that_is_on_time_stands_for_those_that_were_missed() -> None:
    assert due(Misfire.ONCE, last=NOON - timedelta(hours=4), now=NOON + timedelta(seconds=9)) == ["10 12:00"]


@pytest.mark.parametrize("misfire", Misfire)
def test_a_run_is_not_missed_by_the_moment_that_a_look_takes_even_without_a_grace(misfire: Misfire) -> None:
    schedule = Schedule(
        name="hourly", cron=Cron.parse("@hourly"), task="t", misfire=misfire, misfire_grace=timedelta(0)
    )
    assert schedule.due(NOON - timedelta(minutes=30), NOON + timedelta(milliseconds=50)) == [NOON]


def test_no_run_is_lost_without_a_grace_while_workers_with_an_old_and_a_new_rule_take_turns() -> None:
    clock = ManualClock(NOON - timedelta(minutes=30))
    jobs = MemoryJobs(clock)
    store = MemorySchedules(jobs, clock)
    old, new = (
        Scheduler(
            BOX,
            [Schedule(name="hourly", cron=Cron.parse(rule), task="report", misfire_grace=timedelta(0))],
            store=store,
            checks=JobChecks(BOX, tasks=["report"]),
        )
        for rule in ("0 * * * *", "5 * * * *")
    )
    pauses = {old: timedelta(0), new: timedelta(0)}
    while clock.now() < NOON + timedelta(minutes=30):
        worker = min(pauses, key=lambda each: pauses[each])
        passed = pauses[worker]
        clock.advance(passed + timedelta(milliseconds=1))
        pauses = {each: max(timedelta(0), pause - passed) for each, pause in pauses.items()}
        pauses[worker] = worker.turn()
    made = [scheduled_at(job["idempotency_key"]) for job in jobs.list(BOX, JobFilter(), limit=10)]
    assert made == [NOON + timedelta(minutes=5), NOON]


def test_of_many_missed_runs_the_latest_are_made_up_for() -> None:
    last = NOON - timedelta(days=3650)
    assert due(Misfire.ALL, last=last, now=NOON, cron="* * * * *", limit=2) == ["10 11:59", "10 12:00"]


def test_a_run_has_one_key_in_all_processes_and_its_time_can_be_had_from_it() -> None:
    schedule = Schedule(name="hourly", cron=Cron.parse("@hourly"), task="t")
    berlin = NOON.astimezone()
    assert schedule.key(NOON) == schedule.key(berlin) == "cron hourly 2026-01-10T12:00:00+00:00"
    assert scheduled_at(schedule.key(NOON)) == NOON
    assert [scheduled_at(key) for key in (None, "upload 7", "cron of mine")] == [None, None, None]


def test_a_schedule_that_fails_keeps_no_other_from_creating_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(NOON - timedelta(minutes=1))
    jobs = MemoryJobs(clock)
    store = MemorySchedules(jobs, clock)
    schedules = [Schedule(name=name, cron=Cron.parse("@hourly"), task="report") for name in ("locked", "other")]
    scheduler = Scheduler(BOX, schedules, store=store, checks=JobChecks(BOX, tasks=["report"]))
    scheduler.turn()
    clock.advance(timedelta(minutes=1))
    fire = store.fire

    def failing(box: JobBox, name: str, *arguments: Any, **options: Any) -> datetime | None:
        if name == "locked":
            raise StoreConflict("somebody has locked the row")
        return fire(box, name, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(store, "fire", failing)
        with pytest.raises(StoreConflict):
            scheduler.turn()
    assert [row["producer"] for row in jobs.list(BOX, JobFilter(), limit=9)] == ["cron other"]
    scheduler.turn()
    assert len(jobs.list(BOX, JobFilter(), limit=9)) == 2
