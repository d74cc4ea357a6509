"""What processes share about schedules: the moment up to which runs have been created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from boxengine.domain.jobs import JobBox
from boxengine.ports.jobs import NewJob


@dataclass(frozen=True, slots=True)
class Known:
    """The schedules of a box, at one moment of the store's clock."""

    now: datetime
    handled_until: Mapping[str, datetime]
    """By the schedule's name; a schedule that no worker has seen yet is missing."""


class Schedules(Protocol):
    """Every method may raise ``StoreUnavailable``; then either everything has changed or nothing."""

    def fire(
        self,
        box: JobBox,
        name: str,
        rule: str,
        runs: Callable[[datetime, datetime], Sequence[NewJob]],
        *,
        grace: timedelta,
    ) -> datetime | None:
        """Creates the due runs and records the store's present time as handled, all or nothing; returns that time.

        ``runs`` is called, perhaps twice, with the moment until which the schedule was handled, and with that time. While its
        jobs are created, nobody else fires the schedule. A schedule that is new counts as handled until now, and so does one
        whose moment lies in the future because a clock was set back. One whose rule has changed counts as handled until
        ``grace`` ago, even if it was looked at since: workers with the old rule and with the new one may run beside each other,
        and each must find its own runs. None: somebody else has registered the new schedule at the same moment.
        """

    def known(self, box: JobBox) -> Known:
        """The moments until which the schedules were handled."""
