"""Long jobs as people and programs outside the worker handle them: creating, inspecting, canceling, running again."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from boxengine.adapters.sql.connecting.errors import blaming_the_row, translated
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.jobs.checkup import SqlJobCheckup
from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.adapters.sql.jobs.inspection import SqlJobInspector
from boxengine.adapters.sql.jobs.pauses import SqlJobPauses
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.jobs.workers import SqlJobWorkers
from boxengine.app.boxes import Boxes
from boxengine.domain.jobs import JobBox
from boxengine.errors import UnknownBox
from boxengine.ports import Workers
from boxengine.ports.coordination.job_pauses import JobPauses
from boxengine.ports.jobs import JobDesk
from boxengine.ports.people.checkup import Remark
from boxengine.ports.people.jobs import JobInspector


class JobOffice:
    """The job boxes of one configuration."""

    def __init__(self, boxes: Boxes, store: SqlStore) -> None:
        """Args:
        store: its connections are used; its creator closes it.
        """
        self._boxes = boxes
        pipelines = boxes.resolved.jobs
        models = {name: pipeline.model for name, pipeline in pipelines.items() if pipeline.model is not None}
        self._jobs = SqlJobs(store.engine, models)
        self.boxes: tuple[JobBox, ...] = tuple(pipeline.box for pipeline in pipelines.values())
        self.desk: JobDesk = SqlJobDesk(self._jobs, wakeup=boxes.job_wakeup)
        self.inspector: JobInspector = SqlJobInspector(self._jobs)
        self.pauses: JobPauses = SqlJobPauses(self._jobs)
        self.workers: Workers = SqlJobWorkers(self._jobs, self.boxes)
        self._checkup = SqlJobCheckup(self._jobs, models)

    @cached_property
    def by_id(self) -> Mapping[str, JobBox]:
        """The boxes by their URL names."""
        return {box.url_name: box for box in self.boxes}

    @cached_property
    def named(self) -> Mapping[str, JobBox]:
        """The boxes by their names."""
        return {box.name: box for box in self.boxes}

    def box(self, given: str) -> JobBox:
        """The box with this name or URL name.

        Raises:
            UnknownBox: there is none.
        """
        found = self.by_id.get(given) or self.named.get(given)
        if found is None:
            raise UnknownBox(given[:80], [box.name for box in self.boxes])
        return found

    def remarks(self) -> list[Remark]:
        """What causes trouble in production.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        return self._checkup.remarks(self.boxes) if self.boxes else []

    def create(self, box: JobBox, attributes: Mapping[str, Any]) -> tuple[int, str]:
        """Creates a job in its own transaction and returns its id and status, which may be those of an older job with the same
        ``idempotency_key``.

        Raises:
            InvalidItem: it cannot be a job.
            StoreUnavailable: the database does not answer.
        """
        engine = self._jobs.engine
        with translated(engine), blaming_the_row(), engine.begin() as connection:
            (job_id,) = self._boxes.job_creator(box.name).create(connection, [attributes])
        row = self.inspector.get(box, job_id)
        return job_id, "queued" if row is None else str(row["status"])
