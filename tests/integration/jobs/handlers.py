"""Models and handlers of the tests. Handlers wait for rows that the tests write, so that nothing depends on speed."""

from __future__ import annotations

import threading
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import DeclarativeBase

from boxengine import Job, JobItem


class Base(DeclarativeBase):
    pass


class ReportJob(JobItem, Base):
    __tablename__ = "report_jobs"


class Gates:
    """By name, what handlers wait for."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(name, threading.Event())


def export(job: Job[Any]) -> dict[str, Any]:
    job.session.execute(text("INSERT INTO effects (body) VALUES (:body)"), {"body": f"{job.id}"})
    job.progress(done=1)
    return {"rows": job.args["rows"]}


def until_cancelled(job: Job[Any]) -> None:
    job.progress(waiting=True)
    pause = threading.Event()
    while not job.cancelled:
        pause.wait(0.01)


class Guarded:
    """A handler with a method ``handle``."""

    def handle(self, job: Job[Any]) -> str:
        gates: Gates = GATES[job.args["test"]]
        gates[f"begun {job.id}"].set()
        gates[f"go {job.id}"].wait(60)
        return f"by attempt {job.attempt}"


GATES: dict[str, Gates] = {}
"""By test, so that none meets another's."""
