"""How the conformance suite reaches each store of jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.jobs import MemoryJobs
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.adapters.sql.jobs.insert import SqlNewJobs
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.domain.jobs import ClaimedJob, Ending, JobBox
from boxengine.ports.jobs import JobDesk, JobStore, NewJob

BOX = JobBox(name="report_job", table="report_jobs", retention=timedelta(days=1))
NAMES = ("memory", "postgresql", "mysql")


def new(task: str = "report", **attributes: Any) -> NewJob:
    values: dict[str, Any] = {"args": {}, "max_attempts": 3, "lease_ttl": timedelta(seconds=60), **attributes}
    return NewJob(task=task, **values)


class JobHarness(ABC):
    """One store, as two processes see it, and its people."""

    store: JobStore
    other: JobStore
    desk: JobDesk

    @abstractmethod
    def create(self, *jobs: NewJob) -> list[int]:
        """Committed."""

    @abstractmethod
    def delete(self, job_id: int) -> None:
        """Somebody deletes its row by hand."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """For leases, jobs' times and retention."""

    @abstractmethod
    def write(self, session: Any, text: str) -> None:
        """An effect of a handler, through its session."""

    @abstractmethod
    def effects(self) -> Sequence[str]:
        """Those that are committed."""

    def close(self) -> None:
        """Nothing is open."""
        return

    def one(self, *jobs: NewJob, worker: str = "w") -> ClaimedJob:
        """Creates these, and claims one."""
        self.create(*(jobs or (new(),)))
        (job,) = self.store.claim(BOX, 1, worker=worker)
        return job

    def row(self, job_id: int) -> Mapping[str, Any]:
        found = self.desk.show(BOX, job_id)
        assert found is not None
        return found

    def kinds(self, job_id: int) -> list[str]:
        return [event["kind"] for event in self.row(job_id)["events"]]

    def told(self, job_id: int, kind: str) -> list[Any]:
        """The payloads of this job's events of a kind."""
        return [event["payload"] for event in self.row(job_id)["events"] if event["kind"] == kind]


class MemoryHarness(JobHarness):
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.jobs = self.store = self.other = self.desk = MemoryJobs(self.clock)

    def create(self, *jobs: NewJob) -> list[int]:
        return self.jobs.insert(BOX, jobs)

    def delete(self, job_id: int) -> None:
        del self.jobs.tables[BOX.name][job_id]

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def write(self, session: Any, text: str) -> None:
        session.append(text)

    def effects(self) -> Sequence[str]:
        return self.jobs.effects


class SqlHarness(JobHarness):
    def __init__(self, url: str) -> None:
        self.engines = [connect(url, connections=5) for _ in range(2)]
        self.engine = self.engines[0]
        schema.create(self.engine, [BOX], {})
        self.store, self.other = (SqlJobs(engine) for engine in self.engines)
        self.desk = SqlJobDesk(self.store)
        self._new = SqlNewJobs(BOX)
        self._run("CREATE TABLE effects (id int PRIMARY KEY, body varchar(100) NOT NULL)")

    def _run(self, sql: str) -> list[Any]:
        with self.engine.begin() as connection:
            result = connection.execute(sa.text(sql))
            return list(result) if result.returns_rows else []

    def create(self, *jobs: NewJob) -> list[int]:
        with self.engine.begin() as connection:
            return self.insert(connection, *jobs)

    def insert(self, connection: sa.Connection, *jobs: NewJob) -> list[int]:
        """In an open transaction."""
        return self._new.insert(connection, jobs)

    def delete(self, job_id: int) -> None:
        self._run(f"DELETE FROM report_jobs WHERE id = {job_id}")

    def pass_time(self, seconds: float) -> None:
        """The server's clock goes on by itself; here all that is written lies further back."""
        span = (
            f"interval '{seconds} seconds'"
            if self.engine.dialect.name == "postgresql"
            else f"INTERVAL {seconds} SECOND"
        )
        moments = ("available_at", "lease_expires_at", "heartbeat_at", "finished_at")
        self._run("UPDATE report_jobs SET " + ", ".join(f"{name} = {name} - {span}" for name in moments))

    def write(self, session: Any, text: str) -> None:
        session.execute(
            sa.text("INSERT INTO effects SELECT COALESCE(MAX(id), 0) + 1, :body FROM effects"), {"body": text}
        )

    def effects(self) -> Sequence[str]:
        return [row.body for row in self._run("SELECT body FROM effects ORDER BY id")]

    def close(self) -> None:
        """Leaves empty tables behind, and no connection."""
        for table in ("report_jobs", "report_jobs_events", "report_jobs_after", "effects"):
            self._run(f"DELETE FROM {table}")
        for engine in self.engines:
            engine.dispose()


def claim(jobs: JobHarness, count: int = 10, worker: str = "w") -> list[ClaimedJob]:
    return list(jobs.store.claim(BOX, count, worker=worker))


def end(jobs: JobHarness, job: ClaimedJob, ending: Ending) -> bool:
    return jobs.store.unit(BOX, job).end(ending)
