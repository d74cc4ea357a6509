"""Schedules: jobs that are created at set times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice
from typing import Any, assert_never

from boxengine.domain.cron import Cron

KEY = "cron"
"""The prefix of scheduled jobs' idempotency keys."""
LEAST_GRACE = timedelta(seconds=5)
"""A worker looks a moment after a run's time, and may wait for another that looks as well. With no grace at all, every run would
be missed wherever the delay counts."""


class Misfire(StrEnum):
    """What happens to runs that came due while no worker was running."""

    SKIP = "skip"
    """They are skipped."""
    ONCE = "once"
    """The latest run replaces all of them."""
    ALL = "all"
    """All of them are made up for, but at most the latest ``misfire_limit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One entry of a box's ``cron``. Immutable; created from the settings."""

    name: str
    cron: Cron
    zone: tzinfo = UTC
    zone_name: str = "UTC"
    task: str
    misfire: Misfire = Misfire.ONCE
    misfire_limit: int = 100
    misfire_grace: timedelta = timedelta(seconds=60)
    """A run that is created with at most this delay counts as on time; see ``grace``."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The attributes of the created jobs, other than their task."""

    @property
    def rule(self) -> str:
        """Identifies the rule: while it is unchanged, the schedule is the same."""
        return f"{self.cron.text} {self.zone_name}"

    @property
    def grace(self) -> timedelta:
        """The delay with which a run still counts as on time."""
        return max(LEAST_GRACE, self.misfire_grace)

    def next_after(self, moment: datetime) -> datetime:
        """The next run, in UTC."""
        return self.cron.after(moment, self.zone)

    def due(self, handled_until: datetime, now: datetime) -> Sequence[datetime]:
        """The runs to create now, the earliest first.

        Args:
            handled_until: runs up to this moment have been created or skipped.
        """
        found = list(islice(self.cron.latest(handled_until, now, self.zone), self.misfire_limit))[::-1]
        on_time = [each for each in found if each >= now - self.grace]
        match self.misfire:
            case Misfire.SKIP:
                return on_time
            case Misfire.ONCE:
                return on_time or found[-1:]
            case Misfire.ALL:
                return found
            case never:
                assert_never(never)

    def key(self, run: datetime) -> str:
        """The idempotency key of a run, which is the same in all processes."""
        return f"{KEY} {self.name} {run.astimezone(UTC).isoformat()}"


def scheduled_at(idempotency_key: str | None) -> datetime | None:
    """The run that a job was created for; None: no schedule created it."""
    kind, _, rest = (idempotency_key or "").partition(" ")
    if kind != KEY:
        return None
    try:
        return datetime.fromisoformat(rest.rpartition(" ")[2])
    except ValueError:
        return None
