"""An application with a box of jobs, for the tests on real servers."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Engine

import boxengine
from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs.desk import SqlJobDesk
from boxengine.app.boxes import Boxes, load_for_worker
from boxengine.app.jobs.connecting import connect_jobs
from boxengine.domain.jobs import JobState
from tests.eventually import eventually
from tests.integration.jobs.handlers import GATES, Effect, Gates, ReportJob

HERE = "tests.integration.jobs.handlers"
NAME = "report_job"


class Shop:
    """An application with a box of jobs, and its workers."""

    def __init__(self, folder: Path, url: str, **others: Any) -> None:
        """Args:
        others: keys of the top level, in place of those of the tests.
        """
        configuration = {
            "database": {"url": url},
            "probes": {"enabled": False},
            "jobs": {"heartbeat": 0.1, "poll_interval": 0.02, "reaper_period": 0.1},
            "job_items": {
                NAME: {
                    "model": f"{HERE}.ReportJob",
                    "concurrency": 3,
                    "retry_interval": 0,
                    "tasks": {
                        "export": f"{HERE}.export",
                        "until_cancelled": f"{HERE}.until_cancelled",
                        "guarded": f"{HERE}.Guarded",
                        "at_leisure": f"{HERE}.at_leisure",
                        "large": f"{HERE}.large",
                        "in_steps": f"{HERE}.in_steps",
                        "until_told": f"{HERE}.until_told",
                        "swallow": f"{HERE}.swallow",
                        "forget": f"{HERE}.forget",
                        "commit": f"{HERE}.commit",
                        "commit_awaited": f"{HERE}.commit_awaited",
                        "leave_a_thread": f"{HERE}.leave_a_thread",
                        "block": f"{HERE}.block",
                        "block_awaited": f"{HERE}.block_awaited",
                    },
                }
            },
            **others,
        }
        self.path = path = folder / "outbox.yml"
        path.write_text(yaml.safe_dump(configuration))
        self.boxes: Boxes = load_for_worker(path)
        pipelines = self.boxes.resolved.jobs
        self.box = pipelines[NAME].box
        self.store = connect_jobs(self.boxes.resolved.settings, pipelines, threads=False)
        self.engine: Engine = self.store.engine
        self.desk = SqlJobDesk(self.store)
        schema.create(self.engine, [self.box], {NAME: ReportJob})
        with self.engine.begin() as connection:
            Effect.metadata.tables["effects"].create(connection)
        self.test = uuid.uuid4().hex
        self.gates = GATES.setdefault(self.test, Gates())

    def create(self, task: str, **attributes: Any) -> int:
        with self.engine.begin() as connection:
            return self.boxes.create_job(connection, ReportJob, task=task, **attributes)

    def guarded(self, **attributes: Any) -> int:
        return self.create("guarded", args={"test": self.test}, **attributes)

    def worker(self) -> boxengine.running:
        return boxengine.running(self.boxes)

    def job(self, job_id: int) -> Any:
        return self.desk.show(self.box, job_id)

    def becomes(self, job_id: int, state: JobState) -> Any:
        eventually(lambda: self.job(job_id)["status"] == str(state))
        return self.job(job_id)

    def kinds(self, job_id: int) -> list[str]:
        return [event["kind"] for event in self.job(job_id)["events"]]

    def close(self) -> None:
        del GATES[self.test]
        self.store.close()
