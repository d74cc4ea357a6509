"""What workers do with jobs in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from boxengine.adapters.memory.jobs.desk import MemoryDesk
from boxengine.adapters.memory.jobs.rows import Row, claimed, order
from boxengine.adapters.memory.jobs.unit import MemoryUnit
from boxengine.domain.jobs import (
    Beat,
    ClaimedJob,
    Due,
    EventKind,
    Held,
    JobBacklog,
    JobBox,
    JobOutcome,
    JobState,
    Reaped,
    Waits,
)

SILENT = "its worker fell silent, and the lease ran out"


class MemoryJobs(MemoryDesk):
    """``JobStore``, ``JobDesk`` and ``NewJobs`` in one."""

    def claim(self, box: JobBox, count: int, *, worker: str, oldest: int = 0) -> Sequence[ClaimedJob]:
        with self._lock:
            ready = sorted(self._queued(self._rows(box), Waits.NOTHING), key=order)
            aged = self._aged(box, ready)[:oldest]
            held = self._held_keys(box)
            taken: list[Row] = []
            for row in [*aged, *(row for row in ready if row not in aged)]:
                if len(taken) == count:
                    break
                if row.lock_key is not None and row.lock_key in held:
                    row.waits = Waits.LOCK
                    continue
                held.add(row.lock_key)
                self._take(row, worker)
                taken.append(row)
            return [claimed(row, for_age=row in aged) for row in taken]

    def record(self, box: JobBox, outcomes: Sequence[JobOutcome]) -> set[int]:
        with self._lock:
            return {each.job.id for each in outcomes if self.record_one(box, each)}

    def still_held(self, box: JobBox, held: Sequence[Held]) -> set[int]:
        with self._lock:
            return {each.id for each in held if self.holds(box, each) is not None}

    def unit(self, box: JobBox, job: ClaimedJob) -> MemoryUnit:
        return MemoryUnit(self, box, job)

    def beat(self, box: JobBox, beats: Sequence[Beat]) -> Mapping[int, bool]:
        with self._lock:
            answer = {}
            for each in beats:
                row = self.holds(box, each.held)
                if row is not None:
                    self.prolong(row)
                    answer[row.id] = row.cancel_requested
                    if each.progress is not None:
                        row.progress = each.progress
            return answer

    def give_back(self, box: JobBox, held: Sequence[Held]) -> None:
        with self._lock:
            for each in held:
                row = self.holds(box, each)
                if row is not None:
                    row.attempt -= 1
                    self._leave(box, row, JobState.CANCELED if row.cancel_requested else JobState.QUEUED)
                    kind = EventKind.CANCELED if row.cancel_requested else EventKind.REQUEUE
                    self._tell(row, kind, {"reason": "not begun"})

    def lag(self, box: JobBox) -> timedelta | None:
        with self._lock:
            ready = [row.available_at for row in self._queued(self._rows(box), Waits.NOTHING)]
            return max(timedelta(0), self._clock.now() - min(ready)) if ready else None

    def backlog(self, box: JobBox, *, limit: int) -> JobBacklog:
        with self._lock:
            now, rows = self._clock.now(), self._rows(box)
            timed = [row.available_at for row in self._queued(rows, Waits.TIME)]
            ready = [row.available_at for row in self._queued(rows, Waits.NOTHING)] + [at for at in timed if at <= now]
            return JobBacklog(
                ready=min(limit, len(ready)),
                delayed=min(limit, sum(at > now for at in timed)),
                blocked=min(limit, self.stat(box).blocked),
                waits=max(timedelta(0), now - min(ready, default=now)),
            )

    def promote(self, box: JobBox) -> Due:
        with self._lock:
            now = self._clock.now()
            ready = any(self._queued(self._rows(box), Waits.NOTHING))
            waiting = sorted(self._queued(self._rows(box), Waits.TIME), key=lambda row: row.available_at)
            due = [row for row in waiting if row.available_at <= now]
            for row in due:
                row.waits = Waits.NOTHING
            followers = list(self._queued(self._rows(box), Waits.JOBS))
            ended = sum(self._release(box, row) for row in followers)
            next_due = waiting[0].available_at - now if waiting else None
            return Due(promoted=len(due) + ended, ready=ready, next_due=next_due, followers=bool(followers))

    def reap(self, box: JobBox) -> Reaped:
        with self._lock:
            now = self._clock.now()
            requeued, lost = [], []
            for row in list(self._running(box)):
                if row.lease_expires_at is None or row.lease_expires_at >= now:
                    continue
                row.error = SILENT
                if row.cancel_requested:
                    self._leave(box, row, JobState.CANCELED)
                    self._tell(row, EventKind.CANCELED, {"reason": SILENT})
                elif row.attempt < row.max_attempts:
                    requeued.append(row.id)
                    row.available_at = now
                    self._leave(box, row, JobState.QUEUED)
                    self._tell(row, EventKind.REQUEUE, {"reason": SILENT})
                else:
                    lost.append(row.id)
                    self._leave(box, row, JobState.LOST)
                    self._tell(row, EventKind.LOST, {"reason": SILENT})
            expiries = [row.lease_expires_at for row in self._running(box) if row.lease_expires_at is not None]
            return Reaped(
                requeued=tuple(requeued), lost=tuple(lost), next_expiry=min(expiries) - now if expiries else None
            )

    def delete_finished(self, box: JobBox) -> int:
        with self._lock:
            rows, before = self._rows(box), self._clock.now() - box.retention
            old = [row.id for row in rows.values() if row.finished_at is not None and row.finished_at < before]
            for row in list(self._queued(rows, Waits.JOBS)):
                self._release(box, row)
            for job_id in old[: box.deletion_batch_size]:
                del rows[job_id]
            return len(old[: box.deletion_batch_size])
