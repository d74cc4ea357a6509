"""``JobStore`` over PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from boxengine.adapters.sql.jobs import claims, reaping, writes
from boxengine.adapters.sql.jobs.rows import JobRows, short
from boxengine.adapters.sql.jobs.unit import SqlUnit
from boxengine.domain.jobs import Beat, ClaimedJob, Due, Held, JobBox, Reaped

COLLISIONS = 3
"""So often in a row a claim meets one that has not been committed, until it leaves it for the next turn."""


class _Collision(Exception):
    """Two claims took the same ``lock_key`` at the same moment."""


class SqlJobs:
    """Shared by all threads of a process."""

    def __init__(self, engine: Engine, models: Mapping[str, type] | None = None) -> None:
        """Args:
        models: the users' classes by box; tables of other boxes are as the mixin makes them.
        """
        self.engine = engine
        self._models = models or {}
        self._rows: dict[str, JobRows] = {}

    def claim(self, box: JobBox, count: int, *, worker: str) -> Sequence[ClaimedJob]:
        for _ in range(COLLISIONS):
            try:
                with short(self.engine) as connection:
                    return self._claim(connection, box, count, worker)
            except _Collision:
                # The other claim is committed by now: the next look sees who holds the key.
                continue
        return []

    def unit(self, box: JobBox, job: ClaimedJob) -> SqlUnit:
        return SqlUnit(self.engine, self.rows(box), job)

    def beat(self, box: JobBox, beats: Sequence[Beat]) -> Mapping[int, bool]:
        with short(self.engine) as connection:
            return writes.beat(connection, self.rows(box), beats)

    def give_back(self, box: JobBox, held: Sequence[Held]) -> None:
        with short(self.engine) as connection:
            writes.give_back(connection, self.rows(box), held)

    def promote(self, box: JobBox) -> Due:
        with short(self.engine) as connection:
            due = reaping.next_due(connection, self.rows(box))
            if due.next_due is None or due.next_due.total_seconds() > 0:
                return due
            return replace(due, promoted=reaping.promote(connection, self.rows(box)))

    def reap(self, box: JobBox) -> Reaped:
        with short(self.engine) as connection:
            return reaping.reap(connection, self.rows(box))

    def delete_finished(self, box: JobBox) -> int:
        with short(self.engine) as connection:
            return reaping.delete_finished(connection, self.rows(box))

    def _claim(self, connection: Connection, box: JobBox, count: int, worker: str) -> list[ClaimedJob]:
        try:
            return claims.claim(connection, self.rows(box), count, worker)
        except IntegrityError as error:
            raise _Collision from error

    def rows(self, box: JobBox) -> JobRows:
        """The tables of a box."""
        found = self._rows.get(box.name)
        if found is None:
            found = self._rows[box.name] = JobRows(box, self._models.get(box.name))
        return found

    def model(self, box: JobBox) -> type | None:
        """The user's class of a box."""
        return self._models.get(box.name)

    def close(self) -> None:
        """Closes the connections."""
        self.engine.dispose()
