"""What people and programs ask of jobs in memory, and order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boxengine.adapters.memory.jobs.rows import mapping
from boxengine.adapters.memory.jobs.table import JobTables
from boxengine.domain.jobs import (
    FINAL,
    EventKind,
    JobBox,
    JobStat,
    JobState,
    Waits,
)
from boxengine.ports.jobs import LATEST_EVENTS, JobFilter


class MemoryDesk(JobTables):
    """``JobDesk``."""

    def list(self, box: JobBox, which: JobFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        with self._lock:
            found = sorted(self._matching(box, which), key=lambda row: -row.id)
            return [mapping(row) for row in found[:limit]]

    def show(self, box: JobBox, job_id: int) -> Mapping[str, Any] | None:
        with self._lock:
            row = self._rows(box).get(job_id)
            if row is None:
                return None
            latest = row.events[-LATEST_EVENTS:]
            events = [{"ts": moment, "kind": str(kind), "payload": payload} for moment, kind, payload in latest]
            rows = self._rows(box)
            after = [
                {"id": each, "status": str(rows[each].status) if each in rows else None, "waits": waits}
                for each, waits in sorted(row.after.items())
            ]
            return {**mapping(row), "after": after, "events": events}

    def cancel(self, box: JobBox, which: JobFilter) -> int:
        with self._lock:
            changed = 0
            for row in list(self._matching(box, which)):
                if row.status is JobState.QUEUED:
                    ready = row.waits is Waits.NOTHING
                    row.status, row.cancel_requested, row.finished_at = JobState.CANCELED, True, self._clock.now()
                    row.after = dict.fromkeys(row.after, False)
                    self._tell(row, EventKind.CANCELED, {"by": "hand"})
                    if ready:
                        self._let_go(box, row.lock_key)
                    changed += 1
                elif row.status is JobState.RUNNING and not row.cancel_requested:
                    row.cancel_requested = True
                    changed += 1
            return changed

    def retry(self, box: JobBox, which: JobFilter) -> int:
        with self._lock:
            found = [row for row in self._matching(box, which) if row.status in FINAL]
            for row in found:
                row.status, row.waits, row.attempt = JobState.QUEUED, Waits.NOTHING, 0
                row.available_at, row.cancel_requested, row.finished_at = self._clock.now(), False, None
                self._tell(row, EventKind.REQUEUE, {"by": "hand"})
            for row in found:
                self._wait_again(box, row)
            return len(found)

    def stat(self, box: JobBox) -> JobStat:
        with self._lock:
            rows = self._rows(box)
            now = self._clock.now()
            released, timed, locked, after = (list(self._queued(rows, waits)) for waits in Waits)
            delayed = sum(row.available_at > now for row in timed)
            ready = len(released) + len(timed) - delayed
            blocked = len(locked) + len(after)
            taken = len(list(self._running(box)))
            finished: dict[JobState, int] = {}
            for row in rows.values():
                if row.status in FINAL:
                    finished[row.status] = finished.get(row.status, 0) + 1
            total = ready + delayed + blocked + taken
            return JobStat(total=total, ready=ready, taken=taken, delayed=delayed, blocked=blocked, finished=finished)
