"""Jobs in memory: the twin of the SQL adapters, for tests and the simulation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import RLock
from typing import Any, assert_never

from boxengine.domain.jobs import (
    FINAL,
    AfterFailure,
    Beat,
    Canceled,
    ClaimedJob,
    Due,
    Ending,
    EventKind,
    Failed,
    Held,
    JobBox,
    JobOutcome,
    JobStat,
    JobState,
    Reaped,
    Requeued,
    Succeeded,
    Waits,
    end_of_waiting,
    why_canceled,
)
from boxengine.errors import InvalidItem
from boxengine.ports import Clock
from boxengine.ports.jobs import JobFilter, NewJob

SILENT = "its worker fell silent, and the lease ran out"


@dataclass(slots=True, kw_only=True)
class Row:
    """One job."""

    id: int
    task: str
    args: Any
    available_at: datetime
    created_at: datetime
    max_attempts: int
    lease_ttl: timedelta
    priority: int = 100
    idempotency_key: str | None = None
    lock_key: str | None = None
    partition_key: str = ""
    producer: str | None = None
    consumer_group: str | None = None
    status: JobState = JobState.QUEUED
    waits: Waits = Waits.NOTHING
    attempt: int = 0
    token: int = 0
    worker: str | None = None
    lease_expires_at: datetime | None = None
    heartbeat_at: datetime | None = None
    cancel_requested: bool = False
    progress: Any = None
    checkpoint: Any = None
    result: Any = None
    error: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    after: dict[int, bool] = field(default_factory=dict)
    """The jobs that it was created after, and whether it still waits for them."""
    after_failure: AfterFailure = AfterFailure.CANCEL
    events: list[tuple[datetime, EventKind, Any]] = field(default_factory=list)


class MemoryJobs:
    """``JobStore``, ``JobDesk`` and ``NewJobs`` in one. Its clock is the store's clock."""

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
            waits=Waits.TIME if delayed else Waits.NOTHING,
            after={each: end_of_waiting(rows[each].status, job.after_failure) is not True for each in job.after},
            after_failure=job.after_failure,
        )
        if any(row.after.values()):
            row.waits = Waits.JOBS
        rows[row.id] = row
        self._tell(row, EventKind.QUEUED, {"after": list(job.after)} if job.after else None)
        return row.id

    # ── workers ──────────────────────────────────────────────────────────────────────────────────────

    def claim(self, box: JobBox, count: int, *, worker: str, oldest: int = 0) -> Sequence[ClaimedJob]:
        with self._lock:
            ready = sorted(self._queued(self._rows(box), Waits.NOTHING), key=_order)
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
            return [_claimed(row, for_age=row in aged) for row in taken]

    def record(self, box: JobBox, outcomes: Sequence[JobOutcome]) -> set[int]:
        with self._lock:
            return {each.job.id for each in outcomes if self.record_one(box, each)}

    def record_one(self, box: JobBox, outcome: JobOutcome) -> bool:
        """Whether it is recorded: the job was held."""
        row = self.holds(box, outcome.job.held)
        if row is None:
            return False
        if outcome.progress is not None:
            row.progress = outcome.progress
        self.end(box, row, outcome.ending)
        return True

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
                    self._leave(box, row, JobState.QUEUED)
                    self._tell(row, EventKind.REQUEUE, {"reason": "not begun"})

    def lag(self, box: JobBox) -> timedelta | None:
        with self._lock:
            ready = [row.available_at for row in self._queued(self._rows(box), Waits.NOTHING)]
            return max(timedelta(0), self._clock.now() - min(ready)) if ready else None

    def promote(self, box: JobBox) -> Due:
        with self._lock:
            now = self._clock.now()
            waiting = sorted(self._queued(self._rows(box), Waits.TIME), key=lambda row: row.available_at)
            due = [row for row in waiting if row.available_at <= now]
            for row in due:
                row.waits = Waits.NOTHING
            followers = list(self._queued(self._rows(box), Waits.JOBS))
            ended = sum(self._release(box, row) for row in followers)
            next_due = waiting[0].available_at - now if waiting else None
            return Due(promoted=len(due) + ended, next_due=next_due, followers=bool(followers))

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

    # ── people ───────────────────────────────────────────────────────────────────────────────────────

    def list(self, box: JobBox, which: JobFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        with self._lock:
            found = sorted(self._matching(box, which), key=lambda row: -row.id)
            return [_mapping(row) for row in found[:limit]]

    def show(self, box: JobBox, job_id: int) -> Mapping[str, Any] | None:
        with self._lock:
            row = self._rows(box).get(job_id)
            if row is None:
                return None
            events = [{"ts": moment, "kind": str(kind), "payload": payload} for moment, kind, payload in row.events]
            rows = self._rows(box)
            after = [
                {"id": each, "status": str(rows[each].status) if each in rows else None, "waits": waits}
                for each, waits in sorted(row.after.items())
            ]
            return {**_mapping(row), "after": after, "events": events}

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
            ready, delayed, locked, after = (len(list(self._queued(rows, waits))) for waits in Waits)
            blocked = locked + after
            taken = len(list(self._running(box)))
            finished: dict[JobState, int] = {}
            for row in rows.values():
                if row.status in FINAL:
                    finished[row.status] = finished.get(row.status, 0) + 1
            total = ready + delayed + blocked + taken
            return JobStat(total=total, ready=ready, taken=taken, delayed=delayed, blocked=blocked, finished=finished)

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
                self._tell(row, EventKind.DONE)
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
            first, aged = min(waiting, key=_order), self._aged(box, waiting)[:1]
            for row in (first, *aged):
                row.waits = Waits.NOTHING

    def _tell(self, row: Row, kind: EventKind, payload: Any = None) -> None:
        row.events.append((self._clock.now(), kind, payload))


class MemoryUnit:
    """``JobUnit``. Its session is a list: what is appended to it counts once it is committed."""

    def __init__(self, store: MemoryJobs, box: JobBox, job: ClaimedJob) -> None:
        self._store, self._box, self._job = store, box, job
        self._session: list[Any] | None = None

    @property
    def session(self) -> Any:
        if self._session is None:
            self._session = []
        return self._session

    def awaited_session(self, visit: Any) -> Any:  # noqa: ARG002 - nothing here is worth waiting for
        return self.session

    @property
    def in_use(self) -> bool:
        return self._session is not None

    def checkpoint(self, state: Any) -> bool:
        with self._store.writing():
            row = self._store.holds(self._box, self._job.held)
            if row is None:
                return False
            self._store.keep(row, state)
            self._commit()
            return True

    def end(self, ending: Ending, *, progress: Mapping[str, Any] | None = None) -> bool:
        with self._store.writing():
            recorded = self._store.record_one(self._box, JobOutcome(self._job, ending, progress))
            if recorded and isinstance(ending, Succeeded):
                self._commit()
            return recorded

    def close(self) -> None:
        self._session = None

    def lose(self) -> None:
        """Its connection is gone, and with it what was not committed."""
        if self._session is not None:
            self._session.clear()

    def _commit(self) -> None:
        self._store.effects += self._session or []
        if self._session is not None:
            self._session.clear()


def _order(row: Row) -> tuple[int, int]:
    return row.priority, row.id


def _claimed(row: Row, *, for_age: bool) -> ClaimedJob:
    picked = (each for each in reversed(row.events) if each[1] is EventKind.PICKED)
    return ClaimedJob(
        id=row.id,
        token=row.token,
        task=row.task,
        args=row.args,
        attempt=row.attempt,
        max_attempts=row.max_attempts,
        lease_ttl=row.lease_ttl,
        priority=row.priority,
        idempotency_key=row.idempotency_key,
        lock_key=row.lock_key,
        partition_key=row.partition_key,
        checkpoint=row.checkpoint,
        created_at=row.created_at,
        previous_start=next((moment for moment, _, told in picked if told["attempt"] == row.attempt - 1), None),
        for_age=for_age,
    )


def _mapping(row: Row) -> dict[str, Any]:
    names = (name for name in Row.__slots__ if name != "events")
    return {name: getattr(row, name) for name in names} | {"status": str(row.status), "waits": int(row.waits)}
