"""``JobPauses`` in the journal of a box, as events of no job: the latest one holds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy import insert, select

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.jobs.rows import short
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.domain.jobs import JobBox

OF_THE_BOX = 0
"""Where the id of a job stands otherwise. Retention leaves these events alone."""


class Decision(StrEnum):
    """A decision, by its name in the journal."""

    PAUSED = "paused"
    RESUMED = "resumed"
    FORGOTTEN = "forgotten"


_RUNNING: Mapping[str, bool] = {Decision.PAUSED: False, Decision.RESUMED: True}


class SqlJobPauses:
    """Over the tables of a ``SqlJobs``."""

    def __init__(self, jobs: SqlJobs) -> None:
        self._jobs = jobs

    def set(self, box: JobBox, *, running: bool, who: str) -> None:
        """Remembers it for all workers."""
        self._write(box, Decision.RESUMED if running else Decision.PAUSED, who)

    def forget(self, box: JobBox, *, who: str) -> None:
        """The box follows the configuration again."""
        self._write(box, Decision.FORGOTTEN, who)

    def running(self, box: JobBox) -> bool | None:
        """What the latest event says; None: nobody has decided."""
        journal = self._jobs.rows(box).journal.c
        latest = select(journal.kind).where(journal.job_id == OF_THE_BOX).order_by(journal.id.desc()).limit(1)
        with translated(self._jobs.engine), self._jobs.engine.connect() as connection:
            return _RUNNING.get(connection.scalar(latest) or "")

    def _write(self, box: JobBox, decision: Decision, who: str) -> None:
        event = {"job_id": OF_THE_BOX, "kind": str(decision), "payload": {"by": who}}
        with short(self._jobs.engine) as connection:
            connection.execute(insert(self._jobs.rows(box).journal).values(event))
