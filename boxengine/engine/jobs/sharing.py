"""Threads that belong to no box. They go where jobs wait, and more often to boxes with more weight or lag."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from boxengine.domain.jobs import JobBox
from boxengine.engine.jobs.rotation import Rotation
from boxengine.engine.jobs.runner import UNTIL_ASKED, Runner
from boxengine.errors import NotPermitted, StoreConflict, TableMissing
from boxengine.ports.jobs import JobStore

AT_ONCE = timedelta(0)
WAIT = 1.0
"""Seconds for which a turn waits for a box that is behind."""
LEAST_LAG = 0.001
"""Seconds. A job that can begin only now counts too."""


@dataclass(frozen=True, slots=True)
class Member:
    """One box among which the threads are shared."""

    box: JobBox
    runner: Runner
    is_open: Callable[[], bool]
    """Whether its jobs may begin: it is not paused."""


class Sharing:
    """Sends each shared thread to a box, for one job or one batch, and then to the next.

    A box that has jobs waiting gets turns in proportion to its weight times its lag: how long its oldest ready job has
    waited. So boxes with equal lags take turns by weight, and one that falls behind gets more and more of them.
    """

    def __init__(self, members: Sequence[Member], *, store: JobStore, look_every: float) -> None:
        """Args:
        look_every: seconds between two looks at the lags.
        """
        self._members = {member.box.name: member for member in members}
        self._store = store
        self._look_every = timedelta(seconds=look_every)
        self._rotation = Rotation()
        self._changed = threading.Condition()
        self._lags: dict[str, float] = {}
        """In seconds, of boxes with waiting jobs."""
        self._wanted = True
        """Whether a thread has asked for a box since the last look."""
        self._stopping = False

    def look(self) -> timedelta:
        """Asks the store how far behind each box is, if a thread has asked for a box since the last look.

        Raises:
            StoreUnavailable: the lags stay as they were.
        """
        if self._wanted:
            self._wanted = False
            lags = dict[str, float | None]()
            for name, member in self._members.items():
                # Its table is locked or gone, or not this account's to read, and its claimer says so. The other boxes go on.
                with suppress(StoreConflict, TableMissing, NotPermitted):
                    lags[name] = self._lag(member)
            with self._changed:
                self._lags = {name: lag for name, lag in lags.items() if lag is not None}
                self._changed.notify_all()
        return self._look_every

    def turn(self) -> timedelta:
        """Runs one job, or one batch, of some box; returns a pause if the store did not answer."""
        member = self._choose()
        if member is None:
            return UNTIL_ASKED if self._stopping else AT_ONCE
        pause = member.runner.visit()
        if pause is None:
            with self._changed:
                self._lags.pop(member.box.name, None)
            return AT_ONCE
        return pause

    def stop(self) -> None:
        """Interrupts turns that wait."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _lag(self, member: Member) -> float | None:
        lag = self._store.lag(member.box) if member.is_open() else None
        return None if lag is None else max(LEAST_LAG, lag.total_seconds())

    def _choose(self) -> Member | None:
        with self._changed:
            self._wanted = True
            self._changed.wait_for(lambda: self._stopping or bool(self._lags), WAIT)
            if self._stopping:
                return None
            weights = {name: self._members[name].box.weight * lag for name, lag in self._lags.items()}
            chosen = self._rotation.next(weights)
            return None if chosen is None else self._members[chosen]
