"""Which runs of a schedule are created, above all those whose time came while no worker was there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from boxengine.domain.cron import Cron
from boxengine.domain.schedules import Misfire, Schedule, scheduled_at

NOON = datetime(2026, 1, 10, 12, 0, tzinfo=UTC)


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


def test_of_many_missed_runs_the_latest_are_made_up_for() -> None:
    last = NOON - timedelta(days=3650)
    assert due(Misfire.ALL, last=last, now=NOON, cron="* * * * *", limit=2) == ["10 11:59", "10 12:00"]


def test_a_run_has_one_key_in_all_processes_and_its_time_can_be_had_from_it() -> None:
    schedule = Schedule(name="hourly", cron=Cron.parse("@hourly"), task="t")
    berlin = NOON.astimezone()
    assert schedule.key(NOON) == schedule.key(berlin) == "cron hourly 2026-01-10T12:00:00+00:00"
    assert scheduled_at(schedule.key(NOON)) == NOON
    assert [scheduled_at(key) for key in (None, "upload 7", "cron of mine")] == [None, None, None]
