"""``Workers`` of long jobs in the journal of a box, as events of no job, so that they need no Redis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import Select, Table, delete, insert, select, update

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.jobs.moments import ago, clock_now, seconds_until
from boxengine.adapters.sql.jobs.rows import short
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.worker_entry import decoded, encoded
from boxengine.domain.jobs import JobBox
from boxengine.errors import NotPermitted, StoreConflict, TableMissing
from boxengine.ports import WorkerInfo

OF_WORKERS = -1
"""Where the id of a job stands otherwise. Retention leaves these events alone, and a look at the pauses does not read them."""
KIND = "worker"
FORGOTTEN = timedelta(minutes=10)
"""Entries of workers that have been silent for so long are deleted when the next worker begins."""
MOST = 1000
"""Entries of one box that a look reads, the latest first."""


class SqlJobWorkers:
    """Over the tables of a ``SqlJobs``. A worker has an entry in the journal of each of its boxes, for those who look at one."""

    def __init__(self, jobs: SqlJobs, boxes: Sequence[JobBox]) -> None:
        """Args:
        boxes: those that the worker works on, or that somebody looks at.
        """
        self._jobs = jobs
        self._boxes = boxes
        self._entries: dict[tuple[str, str], int] = {}
        """The ids of the events, by worker and box."""

    def announce(self, worker: WorkerInfo, *, ttl: timedelta) -> None:
        """See ``Workers``. One statement for each box, but for the first time. A box without a table gets its entry once it has
        one, and one whose table somebody has locked, or this account may not write, once that is over."""
        for box in self._boxes:
            with suppress(TableMissing, StoreConflict, NotPermitted):
                self._announce(box, worker, ttl)

    def _announce(self, box: JobBox, worker: WorkerInfo, ttl: timedelta) -> None:
        journal, entry = self._jobs.rows(box).journal, (worker.id, box.name)
        said = {"ts": clock_now(), "payload": {**encoded(worker), "ttl": ttl.total_seconds()}}
        with short(self._jobs.engine) as connection:
            known = _is(journal, self._entries.get(entry, 0))
            if connection.execute(update(journal).where(known).values(said)).rowcount:
                return
            silent = journal.c.ts < ago(FORGOTTEN.total_seconds())
            gone = list(connection.scalars(select(journal.c.id).where(journal.c.job_id == OF_WORKERS, silent)))
            if gone:
                connection.execute(delete(journal).where(journal.c.id.in_(gone)))
            made = connection.execute(insert(journal).values({**said, "job_id": OF_WORKERS, "kind": KIND}))
            self._entries[entry] = next(key.id for key in made.inserted_primary_key_rows if key is not None)

    def withdraw(self, worker_id: str) -> None:
        """See ``Workers``. Knows those that have announced themselves through this object."""
        for box in self._boxes:
            entry = self._entries.pop((worker_id, box.name), None)
            if entry is not None:
                journal = self._jobs.rows(box).journal
                with suppress(StoreConflict), short(self._jobs.engine) as connection:
                    connection.execute(delete(journal).where(_is(journal, entry)))

    def living(self) -> list[WorkerInfo]:
        """See ``Workers``. One statement for each box. Where a box has no table, nobody has announced himself; where somebody has
        locked it, or this account may not read it, nobody is seen."""
        found: dict[str, WorkerInfo] = {}
        for box in self._boxes:
            with suppress(TableMissing, StoreConflict, NotPermitted):
                found |= {worker.id: worker for worker in self._living_of(box)}
        return sorted(found.values(), key=lambda worker: (worker.started_at, worker.id))

    def _living_of(self, box: JobBox) -> list[WorkerInfo]:
        with translated(self._jobs.engine), self._jobs.engine.connect() as connection:
            entries = connection.execute(_said(self._jobs.rows(box).journal)).all()
        said = [(decoded(payload), payload, -float(left)) for payload, left in entries]
        return [worker for worker, payload, silent in said if worker is not None and silent < _ttl(payload)]


def _is(journal: Table, entry: int) -> Any:
    return (journal.c.id == entry) & (journal.c.job_id == OF_WORKERS)


def _said(journal: Table) -> Select[Any]:
    """What each worker said, and the seconds until then, which are below zero."""
    entries = select(journal.c.payload, seconds_until(journal.c.ts)).where(journal.c.job_id == OF_WORKERS)
    return entries.order_by(journal.c.id.desc()).limit(MOST)


def _ttl(said: Any) -> float:
    """Seconds; 0: another program wrote it."""
    ttl = said.get("ttl")
    return ttl if isinstance(ttl, int | float) else 0.0
