"""Schedules in memory: the twin of the SQL adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from threading import RLock

from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.domain.jobs import JobBox
from boxengine.ports import Clock
from boxengine.ports.jobs import NewJob
from boxengine.ports.schedules import Known


class MemorySchedules:
    """``Schedules`` beside a ``MemoryJobs``. Its clock is the store's clock."""

    def __init__(self, jobs: MemoryJobs, clock: Clock) -> None:
        self._jobs = jobs
        self._clock = clock
        self._lock = RLock()
        self._known: dict[str, dict[str, tuple[str, datetime]]] = {}

    def fire(
        self,
        box: JobBox,
        name: str,
        rule: str,
        runs: Callable[[datetime, datetime], Sequence[NewJob]],
        *,
        grace: timedelta,
    ) -> datetime | None:
        with self._lock:
            now, known = self._clock.now(), self._known.setdefault(box.name, {})
            before, until = known.get(name, (rule, now))
            since = until if before == rule else now - grace
            due = runs(since, now) if since < now else ()
            if due or before != rule or until >= now:
                self._jobs.insert(box, due)
                known[name] = (rule, now)
            return now

    def known(self, box: JobBox) -> Known:
        with self._lock:
            rows = self._known.get(box.name, {})
            return Known(self._clock.now(), {name: until for name, (_, until) in rows.items()})
