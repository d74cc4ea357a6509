"""``JobPauses`` in the journal of a box, as events of no job: the latest one holds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, insert, select

from boxengine.adapters.sql.connecting.errors import translated
from boxengine.adapters.sql.connecting.reading import reading
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
        self._questions: dict[str, Select[Any]] = {}

    def set(self, box: JobBox, *, running: bool, who: str) -> None:
        """Remembers it for all workers."""
        self._write(box, Decision.RESUMED if running else Decision.PAUSED, who)

    def forget(self, box: JobBox, *, who: str) -> None:
        """The box follows the configuration again."""
        self._write(box, Decision.FORGOTTEN, who)

    def running(self, box: JobBox) -> bool | None:
        """What the latest event says; None: nobody has decided."""
        with translated(self._jobs.engine), reading(self._jobs.engine) as connection:
            return _RUNNING.get(connection.scalar(self._latest(box)) or "")

    def _latest(self, box: JobBox) -> Select[Any]:
        """Made once: a worker asks every two seconds."""
        if box.name not in self._questions:
            journal = self._jobs.rows(box).journal.c
            said = select(journal.kind).where(journal.job_id == OF_THE_BOX)
            self._questions[box.name] = said.order_by(journal.id.desc()).limit(1)
        return self._questions[box.name]

    def _write(self, box: JobBox, decision: Decision, who: str) -> None:
        event = {"job_id": OF_THE_BOX, "kind": str(decision), "payload": {"by": who}}
        with short(self._jobs.engine) as connection:
            connection.execute(insert(self._jobs.rows(box).journal).values(event))
