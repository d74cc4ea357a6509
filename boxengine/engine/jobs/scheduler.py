"""Creates jobs when their time comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from boxengine.domain.jobs import JobBox
from boxengine.domain.schedules import Schedule
from boxengine.engine.jobs.create import JobChecks
from boxengine.ports.jobs import NewJob
from boxengine.ports.schedules import Schedules

LONGEST = timedelta(seconds=30)
"""Between two looks, so that a clock that was set is noticed."""
SHORTEST = timedelta(seconds=0.05)
"""A clock that runs a little differently does not make it spin."""


class Scheduler:
    """Creates the scheduled jobs of one box. Every worker has a scheduler; the first creates the run, the others find it done."""

    def __init__(
        self,
        box: JobBox,
        schedules: Sequence[Schedule],
        *,
        store: Schedules,
        checks: JobChecks,
        ring: Callable[[], object] = lambda: None,
    ) -> None:
        """Args:
        ring: told that jobs were created.
        """
        self._box = box
        self._schedules = schedules
        self._store = store
        self._checks = checks
        self._ring = ring

    def turn(self) -> timedelta:
        """Comes back when the next run is due, or sooner.

        Raises what the first schedule raised that failed, after all others: somebody may have locked its row.
        """
        failures: list[Exception] = []
        pauses = [LONGEST]
        for each in self._schedules:
            try:
                pauses.append(self._fire(each))
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return min(pauses)

    def _fire(self, schedule: Schedule) -> timedelta:
        made: list[NewJob] = []

        def runs(handled_until: datetime, now: datetime) -> list[NewJob]:
            made[:] = [self._job(schedule, run) for run in schedule.due(handled_until, now)]
            return made

        now = self._store.fire(self._box, schedule.name, schedule.rule, runs, grace=schedule.grace)
        if made:
            self._ring()
        if now is None:
            return SHORTEST
        return min(LONGEST, max(SHORTEST, schedule.next_after(now) - now))

    def _job(self, schedule: Schedule, run: datetime) -> NewJob:
        return self._checks.checked(
            {
                **schedule.attributes,
                "task": schedule.task,
                "idempotency_key": schedule.key(run),
                "producer": f"cron {schedule.name}",
            }
        )
