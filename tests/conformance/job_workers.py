"""How the conformance suite reaches the fleet of workers that run long jobs alone, which stands in the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.jobs.workers import SqlJobWorkers
from boxengine.domain.jobs import JobBox
from boxengine.ports import Workers

DATABASES = {"postgresql": "postgres_url", "mysql": "mysql_url"}
BOXES = [JobBox(name="fleet_job", table="fleet_jobs"), JobBox(name="other_fleet_job", table="other_fleet_jobs")]


class SomeFleet(Protocol):
    """What a test of a fleet needs."""

    @property
    def workers(self) -> Workers: ...

    def pass_time(self, span: timedelta) -> None: ...

    def flush_all(self) -> None: ...


class JobFleet:
    """That of two job boxes."""

    def __init__(self, url: str) -> None:
        self.engine = connect(url, connections=2)
        schema.create(self.engine, BOXES, {})
        self.workers: Workers = SqlJobWorkers(SqlJobs(self.engine), BOXES)

    def pass_time(self, span: timedelta) -> None:
        """The server's clock goes on by itself; here all that is written lies further back."""
        postgresql = self.engine.dialect.name == "postgresql"
        length = f"'{span.total_seconds()} seconds'" if postgresql else f"{span.total_seconds()} SECOND"
        for box in BOXES:
            self.run(f"UPDATE {box.table}_events SET ts = ts - INTERVAL {length}")

    def flush_all(self) -> None:
        """Somebody empties the journals."""
        for box in BOXES:
            self.run(f"DELETE FROM {box.table}_events")

    def run(self, sql: str) -> None:
        """Commits one statement."""
        with self.engine.begin() as connection:
            connection.execute(sa.text(sql))

    def close(self) -> None:
        """Leaves empty tables behind, and no connection."""
        self.flush_all()
        self.engine.dispose()
