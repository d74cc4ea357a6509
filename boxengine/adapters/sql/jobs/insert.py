"""Inserts jobs through the caller's own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select
from sqlalchemy.exc import IntegrityError

from boxengine.adapters.sql.jobs.followers import AT_ONCE, Predecessors
from boxengine.adapters.sql.jobs.moments import later
from boxengine.adapters.sql.jobs.rows import JobRows
from boxengine.adapters.sql.jobs.wakeup import JobWakeup
from boxengine.adapters.sql.sessions.callers_connection import bind_arguments, callers_connection
from boxengine.domain.jobs import EventKind, JobBox, Waits
from boxengine.ports.jobs import NewJob

SOON = timedelta(seconds=2)
"""A job with a shorter delay is announced, too. An idle worker finds the others at a look before their time."""


class SqlNewJobs:
    """``NewJobs`` of one box."""

    def __init__(self, box: JobBox, model: type | None = None, *, wakeup: JobWakeup | None = None) -> None:
        """Args:
        model: the user's class; None: the table is as the mixin makes it.
        wakeup: told of new jobs; None: workers find them at their next look.
        """
        self._wakeup = wakeup
        self._rows = JobRows(box, model)
        jobs = self._rows.jobs
        self._bind = bind_arguments(model, jobs)
        # One shape for all rows, so that many go in one statement.
        available_at = func.coalesce(
            bindparam("given_at", type_=jobs.c.available_at.type), later(bindparam("delay_seconds"))
        )
        self._insert = insert(jobs).values(available_at=available_at)

    def insert(self, session: Any, jobs: Sequence[NewJob]) -> list[int]:
        connection = callers_connection(session, self._bind)
        predecessors = Predecessors(connection, self._rows, jobs)
        plain = [job for job in jobs if job.idempotency_key is None]
        new = list(zip(self._insert_plain(connection, plain, predecessors), plain, strict=True))
        made = iter([job_id for job_id, _ in new])
        keyed: dict[str, NewJob] = {}
        for job in jobs:
            if job.idempotency_key is not None:
                keyed.setdefault(job.idempotency_key, job)
        known = self._insert_keyed(connection, keyed, predecessors, new)
        ids = [next(made) if job.idempotency_key is None else known[job.idempotency_key] for job in jobs]
        predecessors.write(new)
        self._rows.tell(connection, [(job_id, EventKind.QUEUED, _why(job)) for job_id, job in new])
        if self._wakeup is not None and new and any(map(_soon, jobs)):
            self._wakeup.tell(connection)
        return ids

    def _insert_plain(self, connection: Connection, jobs: Sequence[NewJob], predecessors: Predecessors) -> list[int]:
        if len(jobs) > 1 and connection.dialect.insert_executemany_returning_sort_by_parameter_order:
            statement = self._insert.returning(self._rows.jobs.c.id, sort_by_parameter_order=True)
            return list(connection.scalars(statement, [_values(job, predecessors) for job in jobs]))
        return [self._insert_one(connection, job, predecessors) for job in jobs]

    def _insert_one(self, connection: Connection, job: NewJob, predecessors: Predecessors) -> int:
        key = connection.execute(self._insert, _values(job, predecessors)).inserted_primary_key
        return int(key[0])  # type: ignore[index] # of an INSERT there is one

    def _insert_keyed(
        self,
        connection: Connection,
        jobs: Mapping[str, NewJob],
        predecessors: Predecessors,
        new: list[tuple[int, NewJob]],
    ) -> Mapping[str, int]:
        """The ids by key. Adds those jobs to ``new`` that were not there already."""
        known = self._known(connection, list(jobs)) if len(jobs) > 1 else {}
        missing = {key: job for key, job in jobs.items() if key not in known}
        if len(missing) > 1:
            try:
                with connection.begin_nested():
                    made = self._insert_plain(connection, list(missing.values()), predecessors)
            except IntegrityError:
                # Somebody else was quicker with at least one of them, or the server takes two of the keys for the same.
                pass
            else:
                new += zip(made, missing.values(), strict=True)
                return known | dict(zip(missing, made, strict=True))
        for key, job in missing.items():
            known[key] = self._insert_or_find(connection, key, job, predecessors, new)
        return known

    def _insert_or_find(
        self,
        connection: Connection,
        key: str,
        job: NewJob,
        predecessors: Predecessors,
        new: list[tuple[int, NewJob]],
    ) -> int:
        known = self._find(connection, key)
        if known is not None:
            return known
        try:
            with connection.begin_nested():
                made = self._insert_one(connection, job, predecessors)
        except IntegrityError:
            # Somebody else was quicker, and has committed by now.
            known = self._find(connection, key, latest=True)
            if known is None:
                raise
            return known
        new.append((made, job))
        return made

    def _known(self, connection: Connection, keys: Sequence[str]) -> dict[str, int]:
        """The ids of the jobs that have exactly these keys."""
        jobs, known = self._rows.jobs.c, dict[str, int]()
        for start in range(0, len(keys), AT_ONCE):
            some = jobs.idempotency_key.in_(keys[start : start + AT_ONCE])
            rows = connection.execute(select(jobs.idempotency_key, jobs.id).where(some))
            known |= {row.idempotency_key: row.id for row in rows}
        return known

    def _find(self, connection: Connection, key: str, *, latest: bool = False) -> int | None:
        """The id of the job whose key the server takes for this one: some ignore spaces at its end."""
        jobs = self._rows.jobs.c
        query = select(jobs.id).where(jobs.idempotency_key == key)
        if latest and connection.dialect.name != "postgresql":
            # A transaction of REPEATABLE READ sees what came after its beginning only in a locking read. PostgreSQL's does not
            # see it there either, and such a read would need a privilege that an application does not need otherwise.
            query = query.with_for_update(read=True)
        return connection.scalar(query)


def _soon(job: NewJob) -> bool:
    return job.available_at is None and (job.delay is None or job.delay < SOON)


def _why(job: NewJob) -> Mapping[str, Any] | None:
    return {"after": list(job.after)} if job.after else None


def _values(job: NewJob, predecessors: Predecessors) -> Mapping[str, Any]:
    delayed = job.available_at is not None or job.delay is not None
    waits = Waits.JOBS if predecessors.block(job) else Waits.TIME if delayed else Waits.NOTHING
    return {
        "task": job.task,
        "args": job.args,
        "idempotency_key": job.idempotency_key,
        "lock_key": job.lock_key,
        "partition_key": job.partition_key,
        "priority": job.priority,
        "waits": int(waits),
        "max_attempts": job.max_attempts,
        "lease_ttl": int(job.lease_ttl.total_seconds()),
        "producer": job.producer,
        "consumer_group": job.consumer_group,
        "trace_context": job.trace_context,
        "given_at": job.available_at,
        "delay_seconds": 0.0 if job.delay is None else job.delay.total_seconds(),
    }
