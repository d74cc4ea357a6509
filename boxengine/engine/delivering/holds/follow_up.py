"""What a batch means beyond its drain: retries to wake for, receivers that went or came back, rows that are gone or locked."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import NamedTuple

from boxengine.domain.box import Box
from boxengine.engine.delivering.calls.sent import MIDDLEWARE
from boxengine.engine.delivering.holds.gone import GoneRows
from boxengine.engine.delivering.work import Report
from boxengine.engine.polling.schedule import Schedule
from boxengine.engine.running.outages import Outages
from boxengine.engine.timing import TIMING
from boxengine.errors import StoreConflict
from boxengine.ports import Clock, Hold


class _Locked(NamedTuple):
    """Buckets of a box that wait for somebody to unlock a row."""

    buckets: frozenset[int]
    met: float
    """When a batch last met such a row (monotonic seconds)."""


_NOTHING_LOCKED = _Locked(frozenset(), 0.0)


class FollowUp:
    """Passes on what batches report. Shared by all threads."""

    def __init__(self, *, schedule: Schedule, outages: Outages, clock: Clock, gone: GoneRows | None = None) -> None:
        """Args:
        gone: asked about jobs none of whose rows was due; None: rows that are gone are not counted.
        """
        self._schedule = schedule
        self._outages = outages
        self._clock = clock
        self._gone = gone
        self._lock = threading.Lock()
        self._locked: dict[str, _Locked] = {}
        """By box name."""

    def first_batch(self, hold: Hold, report: Report) -> None:
        """The batch that shows which of the rows named by the hold's jobs are there."""
        idle = report.exhausted - report.positions.keys()
        self._schedule.found(hold.box, due=report.positions.keys(), nothing=idle)
        if idle and self._gone is not None:
            self._gone.look(hold, idle)

    def batch(self, box: Box, report: Report) -> None:
        """Any batch: which transports it reached, when its retries are due, and what it found locked."""
        for name in report.reached:
            self._outages.worked(_called(box, name))
        if report.reached and MIDDLEWARE not in report.unreachable:
            # What has reached a transport has come through the middlewares.
            self._outages.worked(_called(box, MIDDLEWARE))
        for name, error in report.unreachable.items():
            self._outages.failed(_called(box, name), error, needed=True)
        for bucket, pause in report.next_due.items():
            self._schedule.wake(box.name, [bucket], within=pause.total_seconds(), prompt=False)
        if report.locked or self._locked:
            self._look_at_locks(box, report)

    def left_to_polls(self, box: Box, buckets: Collection[int]) -> None:
        """These buckets have rows, and the queue was too long to take them: polls go on as soon as it is shorter."""
        self._schedule.wake(box.name, buckets, prompt=False)

    def forget_locks(self) -> None:
        """Ends the outages of locked rows that no batch here has met for long: they are gone, or another worker has them."""
        if not self._locked:
            return
        long_ago = self._clock.monotonic() - TIMING.longest_lease
        with self._lock:
            over = [name for name, locked in self._locked.items() if locked.met < long_ago]
            for name in over:
                del self._locked[name]
        for name in over:
            self._outages.worked(_claiming(name), began=long_ago)

    def _look_at_locks(self, box: Box, report: Report) -> None:
        with self._lock:
            before = self._locked.pop(box.name, _NOTHING_LOCKED)
            left = (before.buckets | report.locked) - report.positions.keys() - report.exhausted
            if left:
                self._locked[box.name] = _Locked(left, self._clock.monotonic() if report.locked else before.met)
        what = _claiming(box.name)
        if report.locked:
            self._outages.failed(what, StoreConflict(_told_of_locks(report.locked)))
        elif before.buckets and not left:
            self._outages.worked(what)


def _claiming(box_name: str) -> str:
    return f"claiming locked rows of {box_name}"


def _told_of_locks(buckets: Collection[int]) -> str:
    names = ", ".join(map(str, sorted(buckets)))
    which = f"bucket {names} waits" if len(buckets) == 1 else f"buckets {names} wait"
    return f"another transaction has locked rows, so {which}; boxengine doctor lists long-running transactions"


def _called(box: Box, name: str) -> str:
    return f"the middlewares of {box.name}" if name == MIDDLEWARE else f"transport {name} of {box.name}"
