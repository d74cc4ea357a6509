"""When cron expressions come due."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from boxengine.domain.cron import Cron

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 29, tzinfo=BERLIN)
"""At 02:00 the clocks go to 03:00."""
AUTUMN = datetime(2026, 10, 25, tzinfo=BERLIN)
"""At 03:00 the clocks go back to 02:00."""


def runs(text: str, after: datetime, count: int) -> list[str]:
    """Local times, with their distance from UTC in hours."""
    cron, found = Cron.parse(text), []
    for _ in range(count):
        after = cron.after(after, BERLIN)
        found.append(f"{after.astimezone(BERLIN):%a %d %b %H:%M %z}")
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30 2 * * *", ["Fri 02 Jan 02:30 +0100", "Sat 03 Jan 02:30 +0100"]),
        ("*/20 9-10 * * *", ["Thu 01 Jan 09:00 +0100", "Thu 01 Jan 09:20 +0100"]),
        ("0 0 1 * *", ["Sun 01 Feb 00:00 +0100", "Sun 01 Mar 00:00 +0100"]),
        ("0 12 * * mon-fri", ["Thu 01 Jan 12:00 +0100", "Fri 02 Jan 12:00 +0100", "Mon 05 Jan 12:00 +0100"]),
        ("0 12 * * 7", ["Sun 04 Jan 12:00 +0100"]),
        ("0 12 * * 0", ["Sun 04 Jan 12:00 +0100"]),
        ("0 0 13 * fri", ["Fri 02 Jan 00:00 +0100", "Fri 09 Jan 00:00 +0100", "Tue 13 Jan 00:00 +0100"]),
        ("0 0 */10 * fri", ["Fri 11 Sep 00:00 +0200"]),
        ("0 0 29 2 *", ["Tue 29 Feb 00:00 +0100"]),
        ("5,10 3 31 JAN,dec *", ["Sat 31 Jan 03:05 +0100", "Sat 31 Jan 03:10 +0100", "Thu 31 Dec 03:05 +0100"]),
        ("@weekly", ["Sun 04 Jan 00:00 +0100"]),
        ("@hourly", ["Thu 01 Jan 04:00 +0100"]),
    ],
)
def test_an_expression_comes_due_when_crontab_says(text: str, expected: list[str]) -> None:
    start = datetime(2026, 1, 1, 3, 0, tzinfo=BERLIN)
    if text == "0 0 */10 * fri":
        # A day that begins with * leaves the choice to the day of the week, and both must hold.
        start = datetime(2026, 9, 2, tzinfo=BERLIN)
    assert runs(text, start, len(expected)) == expected


def test_a_time_that_is_skipped_in_spring_comes_as_long_after_midnight_as_on_other_days() -> None:
    assert runs("30 2 * * *", SPRING, 2) == ["Sun 29 Mar 03:30 +0200", "Mon 30 Mar 02:30 +0200"]


def test_two_times_that_fall_together_in_spring_are_one() -> None:
    assert runs("30 2,3 * * *", SPRING, 2) == ["Sun 29 Mar 03:30 +0200", "Mon 30 Mar 02:30 +0200"]


def test_a_time_that_comes_twice_in_autumn_happens_once() -> None:
    assert runs("30 2 * * *", AUTUMN, 2) == ["Sun 25 Oct 02:30 +0200", "Mon 26 Oct 02:30 +0100"]


@pytest.mark.parametrize("hour", ["*", "*/1", "0-23"])
@pytest.mark.parametrize("day", [SPRING, AUTUMN])
def test_a_schedule_of_every_hour_goes_on_where_clocks_change(day: datetime, hour: str) -> None:
    cron, moment = Cron.parse(f"*/10 {hour} * * *"), day.astimezone(UTC)
    for _ in range(60):
        following = cron.after(moment, BERLIN)
        assert following - moment == timedelta(minutes=10)
        moment = following


def test_half_an_hour_that_is_skipped_leaves_every_hours_minutes_alone() -> None:
    lord_howe = ZoneInfo("Australia/Lord_Howe")
    moment, found = datetime(2026, 10, 4, 0, 0, tzinfo=lord_howe), []
    for _ in range(3):
        moment = Cron.parse("15 * * * *").after(moment, lord_howe)
        found.append(f"{moment.astimezone(lord_howe):%H:%M}")
    assert found == ["00:15", "01:15", "03:15"]


@pytest.mark.parametrize("text", ["*/7 * * * *", "30 2 * * *", "15,45 1-4 * * 6,0", "0 0 1,25 * *"])
def test_the_latest_times_are_those_that_come_after_each_other(text: str) -> None:
    cron = Cron.parse(text)
    for first in (SPRING, AUTUMN):
        begin, end = first - timedelta(days=3), first + timedelta(days=3)
        forward, moment = [], begin
        while (moment := cron.after(moment, BERLIN)) <= end:
            forward.append(moment)
        assert list(cron.latest(begin, end, BERLIN)) == forward[::-1]


@pytest.mark.parametrize(
    ("zone", "first", "expected"),
    [
        ("America/Nuuk", "2026-03-28T00:00", ["28 00:00", "28 00:30", "29 00:00", "29 00:30", "29 23:00"]),
        ("Pacific/Apia", "2011-12-29T23:00", ["29 23:00", "29 23:30", "31 00:00", "31 00:30", "31 23:00"]),
    ],
)
def test_an_evening_that_is_skipped_comes_after_midnight_in_its_place(
    zone: str, first: str, expected: list[str]
) -> None:
    """In Nuuk, clocks go from 23:00 on Saturday to 00:00 on Sunday. In Apia, there was no 30 December in 2011."""
    local, cron = ZoneInfo(zone), Cron.parse("0,30 0,23 * * *")
    begin = moment = datetime.fromisoformat(first).replace(tzinfo=local) - timedelta(minutes=1)
    forward = [moment := cron.after(moment, local) for _ in expected]
    assert [f"{each.astimezone(local):%d %H:%M}" for each in forward] == expected
    assert list(cron.latest(begin, moment, local)) == forward[::-1]


def test_the_latest_times_of_many_years_are_at_hand_at_once() -> None:
    found = Cron.parse("* * * * *").latest(datetime(1990, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), UTC)
    assert [f"{each:%d %H:%M}" for each in itertools.islice(found, 2)] == ["01 00:00", "31 23:59"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("@reboot", "five fields"),
        ("60 * * * *", "0 to 59 for the minute, not '60'"),
        ("* 24 * * *", "0 to 23 for the hour"),
        ("* * 0 * *", "1 to 31 for the day of the month"),
        ("* * * foo *", "1 to 12 for the month, not 'foo'"),
        ("* * * * 8", "0 to 7 for the day of the week"),
        ("5/10 * * * *", "a range or * before the / of the minute, such as 5-59/10"),
        ("*/0 * * * *", "a step of 1 or more"),
        ("* * * * fri-mon", "a range from low to high"),
        ("*-5 * * * *", "a range from low to high"),
        ("1,,2 * * * *", "numbers, ranges, lists or *"),
        ("² * * * *", "numbers, ranges, lists or *"),
        ("0 0 30 2 *", "a day that one of the months has"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_expected(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        Cron.parse(text)
    assert expected in str(error.value)
