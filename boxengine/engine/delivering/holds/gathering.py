"""Jobs that wait within the process for one thread to take all of them.

Where transports answer at once, the database's work is all there is to a batch, and it hardly depends on how many buckets the
batch has. Then one thread with all buckets delivers sooner than four with a few each: those have four times as many batches, and
wait for one another. So what writers name is gathered: the buckets of one transaction go to one thread, and while a thread keeps
up with a box, that one takes next what has come in the meantime, with one call to the coordinator. More threads join as soon as
batches are large or transports take time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from boxengine.domain.box import Box
from boxengine.domain.job import Job
from boxengine.engine.delivering.holds.sizing import is_quick
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
    asked: float
    """When it asked for its buckets. What came later was left to it."""
    since: float
    """When its batch began."""
    quick: bool
    """Whether the one before was quick, and small."""


@dataclass(slots=True)
class _Waiting:
    """What was gathered of one box."""

    box: Box
    since: float
    """When the first of them came."""
    jobs: dict[int, Job] = field(default_factory=dict)
    """By bucket."""


class Gathering:
    """The jobs that one processor has gathered. Threads come and go through it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._paces: dict[int, _Pace] = {}
        """By the identity of a hold, which lives as long as its thread works on it."""
        self._quick: set[str] = set()
        """Names of the boxes whose last batch was quick."""
        self._waiting: dict[str, _Waiting] = {}
        """By box name."""

    # ── what threads report ──────────────────────────────────────────────────────────────────────────

    def begin(self, hold: Hold, *, asked: float | None = None) -> None:
        """A thread begins to work on these buckets.

        Args:
            asked: monotonic time at which the coordinator was asked for them; now if None.
        """
        now = self._clock.monotonic()
        with self._lock:
            began = now if asked is None else asked
            self._paces[id(hold)] = _Pace(hold.box.name, began, now, hold.box.name in self._quick)

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
        """Keeps the jobs for one thread, if one seems to suffice for the box; returns whether it does."""
        with self._lock:
            # Under the lock of ``end``: a thread that keeps up has not looked yet.
            if box.name not in self._quick:
                return False
            self._keep(box, jobs)
        return True

    def put_back(self, box: Box, jobs: Sequence[Job]) -> None:
        """Keeps the jobs for the next thread that looks."""
        with self._lock:
            self._keep(box, jobs)

    def suffices(self, box: Box) -> bool:
        """Whether one thread seems to suffice for the box."""
        return box.name in self._quick

    def waits(self, box: Box) -> bool:
        """Whether jobs of the box wait here."""
        return box.name in self._waiting

    def has_any(self) -> bool:
        """Whether jobs of any box wait here."""
        return bool(self._waiting)

    def is_due(self) -> bool:
        """Whether ``take`` has jobs to give: some wait that are left to no other thread."""
        if not self._waiting:
            return False
        with self._lock:
            return self._first() is not None

    def take(self) -> tuple[Box, list[Job]] | None:
        """The jobs of the box that has waited longest; None if there are none.

        A thread that keeps up with a box, and did when they came, is left them: it looks here when it has finished.
        """
        with self._lock:
            name = self._first()
            if name is None:
                return None
            waiting = self._waiting.pop(name)
            jobs = list(waiting.jobs.values())
            if len(jobs) > MOST:
                self._keep(waiting.box, jobs[MOST:])
        return waiting.box, jobs[:MOST]

    # ── under the lock ───────────────────────────────────────────────────────────────────────────────

    def _first(self) -> str | None:
        """Of the boxes whose jobs are left to no thread, the one whose jobs have waited longest."""
        return next((name for name, waiting in self._waiting.items() if not self._is_left(name, waiting)), None)

    def _is_left(self, name: str, waiting: _Waiting) -> bool:
        """Whether a thread takes these jobs soon."""
        begun_after = self._clock.monotonic() - PATIENCE
        return any(
            # Not to those that came later: with one after the other at work, the jobs would wait for the last.
            pace.box_name == name and pace.quick and pace.since > begun_after and pace.asked <= waiting.since
            for pace in self._paces.values()
        )

    def _keep(self, box: Box, jobs: Sequence[Job]) -> None:
        waiting = self._waiting.setdefault(box.name, _Waiting(box, self._clock.monotonic()))
        for job in jobs:
            waiting.jobs.setdefault(job.bucket, job)
