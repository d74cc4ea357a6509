"""Stops handlers that have lost their job, or are about to, that take too long, and coroutines whose job is to be canceled."""

from __future__ import annotations

from datetime import timedelta

from boxengine.engine.jobs.run import Runs
from boxengine.engine.jobs.timing import JobTiming


class Watchdog:
    """Looks at this process's own clock and asks nobody, so that nothing can keep it waiting."""

    def __init__(self, runs: Runs, *, timing: JobTiming) -> None:
        self._runs = runs
        self._timing = timing

    def turn(self) -> timedelta:
        """Stops handlers whose time is up, again at each turn: one may have caught the error that should have ended it."""
        for run in self._runs.all():
            if run.is_lost():
                run.interrupt()
                continue
            if run.canceled:
                run.pass_on_cancel()
            run.stop_if_late()
        return timedelta(seconds=self._timing.watch)
