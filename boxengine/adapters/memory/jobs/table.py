"""The rows of job boxes in memory: how they are made, change their state and wait for each other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from threading import RLock
from typing import Any, assert_never

from boxengine.adapters.memory.jobs.rows import Row, order
from boxengine.domain.jobs import (
    FINAL,
    Canceled,
    Ending,
    EventKind,
    Failed,
    Held,
    JobBox,
    JobOutcome,
    JobState,
    Requeued,
    Succeeded,
    Waits,
    end_of_waiting,
    why_canceled,
)
from boxengine.errors import InvalidItem
from boxengine.ports import Clock
from boxengine.ports.jobs import JobFilter, NewJob


class JobTables:
    """The tables by box. Its clock is the store's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = RLock()
        self.tables: dict[str, dict[int, Row]] = {}
        self.effects: list[Any] = []
        """What handlers have written through their sessions, committed."""

    # ── creating ─────────────────────────────────────────────────────────────────────────────────────

    def insert(self, box: JobBox, jobs: Sequence[NewJob]) -> list[int]:
        """Committed at once: there is no caller's transaction here."""
        with self._lock:
            rows = self._rows(box)
            for each in (each for job in jobs for each in job.after):
                if each not in rows:
                    raise InvalidItem(f"box {box.name}: after: there is no job {each}")
            return [self._insert(rows, job) for job in jobs]

    def _insert(self, rows: dict[int, Row], job: NewJob) -> int:
        if job.idempotency_key is not None:
            for row in rows.values():
                if row.idempotency_key == job.idempotency_key:
                    return row.id
        now = self._clock.now()
        delayed = job.available_at is not None or job.delay is not None
        row = Row(
            id=len(rows) + 1,
            task=job.task,
            args=json.loads(json.dumps(job.args)),
            available_at=job.available_at or now + (job.delay or timedelta(0)),
            created_at=now,
            max_attempts=job.max_attempts,
            lease_ttl=job.lease_ttl,
            priority=job.priority,
            idempotency_key=job.idempotency_key,
            lock_key=job.lock_key,
            partition_key=job.partition_key,
            producer=job.producer,
            consumer_group=job.consumer_group,
            trace_context=job.trace_context,
            waits=Waits.TIME if delayed else Waits.NOTHING,
            after={each: end_of_waiting(rows[each].status, job.after_failure) is not True for each in job.after},
            after_failure=job.after_failure,
        )
        if any(row.after.values()):
            row.waits = Waits.JOBS
        rows[row.id] = row
        self._tell(row, EventKind.QUEUED, {"after": list(job.after)} if job.after else None)
        return row.id

    # ── what units write ─────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction."""
        with self._lock:
            yield

    def holds(self, box: JobBox, held: Held) -> Row | None:
        """The fence: the row, if it runs under this token."""
        row = self._rows(box).get(held.id)
        return row if row is not None and row.status is JobState.RUNNING and row.token == held.token else None

    def prolong(self, row: Row) -> None:
        """A sign of life."""
        row.heartbeat_at = self._clock.now()
        row.lease_expires_at = row.heartbeat_at + row.lease_ttl

    def keep(self, row: Row, state: Any) -> None:
        """A checkpoint."""
        row.checkpoint = json.loads(json.dumps(state))
        self.prolong(row)

    def end(self, box: JobBox, row: Row, ending: Ending) -> None:
        """The end of an attempt at a job that is held."""
        match ending:
            case Requeued() if row.cancel_requested:
                self._leave(box, row, JobState.CANCELED)
                self._tell(row, EventKind.CANCELED)
            case Succeeded(result=result):
                row.result, row.error = result, None
                self._leave(box, row, JobState.SUCCEEDED)
                self._tell(row, EventKind.DONE, {"attempt": row.attempt})
            case Requeued(pause=pause, error=error, counts=counts):
                row.error, row.attempt = error, row.attempt - (not counts)
                row.available_at = self._clock.now() + pause
                self._leave(box, row, JobState.QUEUED)
                row.waits = Waits.TIME if pause else Waits.NOTHING
                self._tell(row, EventKind.REQUEUE, {"in": pause.total_seconds()})
            case Failed(error=error):
                row.error = error
                self._leave(box, row, JobState.FAILED)
                self._tell(row, EventKind.FAILED, {"error": error})
            case Canceled():
                self._leave(box, row, JobState.CANCELED)
                self._tell(row, EventKind.CANCELED)
            case never:
                assert_never(never)

    def record_one(self, box: JobBox, outcome: JobOutcome) -> bool:
        """Whether it is recorded: the job was held."""
        row = self.holds(box, outcome.job.held)
        if row is None:
            return False
        if outcome.progress is not None:
            row.progress = outcome.progress
        self.end(box, row, outcome.ending)
        return True

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _rows(self, box: JobBox) -> dict[int, Row]:
        return self.tables.setdefault(box.name, {})

    def _queued(self, rows: Mapping[int, Row], waits: Waits) -> Iterator[Row]:
        return (row for row in rows.values() if row.status is JobState.QUEUED and row.waits is waits)

    def _running(self, box: JobBox) -> Iterator[Row]:
        return (row for row in self._rows(box).values() if row.status is JobState.RUNNING)

    def _held_keys(self, box: JobBox) -> set[str | None]:
        return {row.lock_key for row in self._running(box)}

    def _matching(self, box: JobBox, which: JobFilter) -> Iterable[Row]:
        return (
            row
            for row in self._rows(box).values()
            if (which.ids is None or row.id in which.ids)
            and (which.states is None or row.status in which.states)
            and (which.task is None or row.task == which.task)
            and (which.lock_key is None or row.lock_key == which.lock_key)
        )

    def _aged(self, box: JobBox, ready: Sequence[Row]) -> Sequence[Row]:
        if box.aging is None:
            return []
        before = self._clock.now() - box.aging
        return sorted((row for row in ready if row.available_at < before), key=lambda row: row.available_at)

    def _take(self, row: Row, worker: str) -> None:
        row.status, row.worker = JobState.RUNNING, worker
        row.attempt, row.token = row.attempt + 1, row.token + 1
        self.prolong(row)
        row.started_at = row.started_at or row.heartbeat_at
        self._tell(row, EventKind.PICKED, {"attempt": row.attempt, "worker": worker})

    def _leave(self, box: JobBox, row: Row, state: JobState) -> None:
        row.status, row.lease_expires_at = state, None
        if state in FINAL:
            row.finished_at = self._clock.now()
        self._let_go(box, row.lock_key)

    def _release(self, box: JobBox, row: Row) -> bool:
        """Whether this follower's waiting is over."""
        rows = self._rows(box)
        for each in [each for each, waits in row.after.items() if waits]:
            status = rows[each].status if each in rows else None
            over = end_of_waiting(status, row.after_failure)
            if over is None:
                row.status, row.finished_at, row.error = (
                    JobState.CANCELED,
                    self._clock.now(),
                    why_canceled(each, status),
                )
                row.after = dict.fromkeys(row.after, False)
                self._tell(row, EventKind.CANCELED, {"reason": row.error})
                return True
            row.after[each] = not over
        if any(row.after.values()):
            return False
        now = self._clock.now()
        row.waits = Waits.TIME if row.available_at > now else Waits.NOTHING
        row.available_at = max(row.available_at, now)
        self._tell(row, EventKind.RELEASED)
        return True

    def _wait_again(self, box: JobBox, row: Row) -> None:
        rows = self._rows(box)
        row.after = {each: each in rows and rows[each].status not in FINAL for each in row.after}
        if any(row.after.values()):
            row.waits = Waits.JOBS

    def _let_go(self, box: JobBox, key: str | None) -> None:
        waiting = [row for row in self._queued(self._rows(box), Waits.LOCK) if row.lock_key == key]
        if waiting:
            first, aged = min(waiting, key=order), self._aged(box, waiting)[:1]
            for row in (first, *aged):
                row.waits = Waits.NOTHING

    def _tell(self, row: Row, kind: EventKind, payload: Any = None) -> None:
        row.events.append((self._clock.now(), kind, payload))
