"""Jobs that wait within the process for a thread that keeps up with its box.

Where transports answer at once, the database's work is all there is to a batch, and it hardly depends on how many buckets the
batch has. Then one thread with all buckets delivers sooner than four with a few each: those have four times as many batches, and
wait for one another. So while a thread keeps up with a box, what writers name in the meantime is gathered, and that thread takes
all of it next, with one call to the coordinator. More threads join as soon as batches are large or transports take time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.delivering.sizing import is_quick
from boxengine.engine.delivering.work import Report
from boxengine.ports import Clock, Hold

PATIENCE = 0.02
"""Seconds. A thread whose batch takes longer does not keep up: its transport may hang."""
MOST = 1000
"""Jobs that are taken at a time."""


@dataclass(slots=True)
class _Pace:
    """How a thread gets on."""

    box_name: str
    since: float
    """When its batch began."""
    quick: bool
    """Whether the one before was quick, and small."""


class Gathering:
    """Of one processor. Threads come and go through it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._paces: dict[int, _Pace] = {}
        """By the identity of a hold, which lives as long as its thread works on it."""
        self._quick: set[str] = set()
        """Names of the boxes whose last batch was quick."""
        self._waiting: dict[str, tuple[Box, dict[int, Job]]] = {}
        """By box name, the jobs of each bucket."""

    # ── what threads report ──────────────────────────────────────────────────────────────────────────

    def begin(self, hold: Hold) -> None:
        """A thread begins to work on these buckets."""
        now = self._clock.monotonic()
        with self._lock:
            self._paces[id(hold)] = _Pace(hold.box.name, now, hold.box.name in self._quick)

    def batch_begins(self, hold: Hold) -> None:
        """It begins one more batch of them."""
        self._paces[id(hold)].since = self._clock.monotonic()

    def batch_ended(self, hold: Hold, report: Report) -> None:
        """What that batch was like."""
        quick = is_quick(report)
        with self._lock:
            self._paces[id(hold)].quick = quick
            (self._quick.add if quick else self._quick.discard)(hold.box.name)

    def end(self, hold: Hold) -> None:
        """It has finished with them, and looks next at what has been gathered."""
        with self._lock:
            self._paces.pop(id(hold), None)

    # ── jobs ─────────────────────────────────────────────────────────────────────────────────────────

    def add(self, box: Box, jobs: Sequence[Job]) -> bool:
        """Keeps the jobs for a thread that keeps up with the box; False if none does."""
        with self._lock:
            # Under the lock of ``end``: that thread has not looked yet.
            if box.name not in self._kept_up_with():
                return False
            self._keep(box, jobs)
        return True

    def put_back(self, box: Box, jobs: Sequence[Job]) -> None:
        """Keeps the jobs for the next thread that looks."""
        with self._lock:
            self._keep(box, jobs)

    def waits(self, box: Box) -> bool:
        """Whether jobs of the box wait here."""
        return box.name in self._waiting

    def is_due(self) -> bool:
        """Whether ``take`` has jobs to give."""
        if not self._waiting:
            return False
        with self._lock:
            return self._first() is not None

    def take(self) -> tuple[Box, list[Job]] | None:
        """The jobs of the box that has waited longest; None if there are none.

        Boxes with which another thread keeps up are left to that one: it looks here when it has finished.
        """
        with self._lock:
            name = self._first()
            if name is None:
                return None
            box, waiting = self._waiting.pop(name)
            jobs = list(waiting.values())
            if len(jobs) > MOST:
                self._keep(box, jobs[MOST:])
        return box, jobs[:MOST]

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────

    def _first(self) -> str | None:
        """Of the boxes with which no thread keeps up, the one whose jobs have waited longest."""
        others = self._kept_up_with()
        return next((name for name in self._waiting if name not in others), None)

    def _kept_up_with(self) -> set[str]:
        """Names of the boxes with which a thread keeps up."""
        begun_after = self._clock.monotonic() - PATIENCE
        return {pace.box_name for pace in self._paces.values() if pace.quick and pace.since > begun_after}

    def _keep(self, box: Box, jobs: Sequence[Job]) -> None:
        _, waiting = self._waiting.setdefault(box.name, (box, {}))
        for job in jobs:
            waiting.setdefault(job.bucket, job)
