"""Cron expressions: the times of something that recurs.

Five fields, as in crontab(5): minute, hour, day of the month, month, day of the week. Each is ``*`` or a list of numbers
and ranges, with steps (``*/15``, ``9-17/2``); months and days of the week also have their English names. If days of
the month and of the week are both given, a day that matches either one is enough. ``@hourly``, ``@daily``,
``@weekly``, ``@monthly`` and ``@yearly`` are short forms.

Times are local times in a time zone. When clocks change:

- A local time that is skipped in spring happens as long after midnight as on any other day: 02:30 becomes 03:30.
- A local time that comes twice in autumn happens only the first time.
- If the hour is ``*``, or names all 24, neither rule applies: a schedule for every ten minutes continues every ten minutes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

_SHORT = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS: Sequence[tuple[str, int, int, Mapping[str, int]]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _WEEKDAYS),
)
_PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?")
_DAY = timedelta(days=1)
_HOURS = 24
_DAYS_AHEAD = 366 * 8
"""There is always a 29th of February within eight years."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    either_day: bool
    """Whether the day of the month and the day of the week are both given: then it is enough that one of them matches."""

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Reads an expression such as ``30 2 * * mon-fri``.

        Raises:
            ValueError: the expression is wrong; the text says what was expected.
        """
        fields = _SHORT.get(text.strip().lower(), text).lower().split()
        if len(fields) != len(_FIELDS):
            raise ValueError(
                f"expected five fields (minute, hour, day of the month, month, day of the week) or one of {', '.join(_SHORT)}"
            )
        minutes, hours, days, months, weekdays = (
            _numbers(field, *kind) for field, kind in zip(fields, _FIELDS, strict=True)
        )
        found = cls(
            text=" ".join(text.split()),
            minutes=tuple(sorted(minutes)),
            hours=tuple(sorted(hours)),
            days=days,
            months=months,
            weekdays=frozenset(number % 7 for number in weekdays),
            either_day=not fields[2].startswith("*") and not fields[4].startswith("*"),
        )
        found.after(datetime(2000, 1, 1, tzinfo=UTC), UTC)
        return found

    def after(self, moment: datetime, zone: tzinfo) -> datetime:
        """The first time after this moment, in UTC.

        Raises:
            ValueError: there is no such time.
        """
        first = moment.astimezone(zone).date() - _DAY
        for day in _days(first, 1, _DAYS_AHEAD):
            for found in _times(self, day, zone):
                if found > moment:
                    return found
        raise ValueError("expected a day that one of the months has")

    def latest(self, after: datetime, until: datetime, zone: tzinfo) -> Iterator[datetime]:
        """The times after ``after``, up to and including ``until``, in UTC, the latest first."""
        last = until.astimezone(zone).date() + _DAY
        length = (last - after.astimezone(zone).date()).days + 2
        for day in _days(last, -1, max(0, length)):
            for found in reversed(_times(self, day, zone)):
                if after < found <= until:
                    yield found

    @property
    def every_hour(self) -> bool:
        """Whether the hour is ``*``, or names all 24."""
        return len(self.hours) == _HOURS

    def has(self, day: date) -> bool:
        """Whether the expression matches this day."""
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (in_month or in_week) if self.either_day else (in_month and in_week)


def _days(first: date, step: int, count: int) -> Iterator[date]:
    return (first + number * step * _DAY for number in range(count))


@lru_cache(maxsize=64)
def _times(cron: Cron, day: date, zone: tzinfo) -> list[datetime]:
    """The times that come on one local day, in order: a time that is skipped late in the evening comes after midnight.

    Cached, because a caller that checks every few seconds asks for the same days.
    """
    both = _written(cron, day - _DAY, zone) | _written(cron, day, zone)
    return sorted(moment for moment in both if moment.astimezone(zone).date() == day)


@lru_cache(maxsize=64)
def _written(cron: Cron, day: date, zone: tzinfo) -> frozenset[datetime]:
    """The times that the expression has for one local day."""
    if not cron.has(day):
        return frozenset()
    found: set[datetime] = set()
    for hour, minute in itertools.product(cron.hours, cron.minutes):
        local = datetime.combine(day, time(hour, minute), zone)
        if cron.every_hour:
            found.update(_whenever_clocks_show(local))
        else:
            found.add(local.astimezone(UTC))
    return frozenset(found)


def _whenever_clocks_show(local: datetime) -> Iterator[datetime]:
    """The moments, in UTC, when clocks show this time: one on most days, two or none when clocks change."""
    for each in (local, local.replace(fold=1)):
        moment = each.astimezone(UTC)
        if moment.astimezone(local.tzinfo).replace(tzinfo=None) == local.replace(tzinfo=None):
            yield moment


def _numbers(field: str, name: str, least: int, most: int, names: Mapping[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"expected numbers, ranges, lists or * for the {name}, not {part!r}")
        begin, end, step = match.groups()
        if begin == "*":
            first, last = least, most
        else:
            first = _number(begin, name, least, most, names)
            last = first if end is None else _number(end, name, least, most, names)
        if step is not None and begin != "*" and end is None:
            raise ValueError(f"expected a range or * before the / of the {name}, such as {begin}-{most}/{step}")
        if first > last or (begin == "*" and end is not None):
            raise ValueError(f"expected a range from low to high for the {name}, not {part!r}")
        if step is not None and int(step) == 0:
            raise ValueError(f"expected a step of 1 or more for the {name}")
        found.update(range(first, last + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, name: str, least: int, most: int, names: Mapping[str, int]) -> int:
    number = names.get(text, int(text) if text.isascii() and text.isdigit() else None)
    if number is None or not least <= number <= most:
        raise ValueError(f"expected {least} to {most} for the {name}, not {text!r}")
    return number
