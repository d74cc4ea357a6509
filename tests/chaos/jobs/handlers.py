"""What the workers of a run call: a handler that leaves traces outside the engine, whatever becomes of its worker.

Standard library and SQLAlchemy only. Traces are of two kinds:

- *Effects*, lines of one file, written at every step of a job: ``asked at pid job token key ;``. Both times are monotonic
  seconds: before the handler asked whether the job is still its own, and just before the line was written. One handle is
  open for appending, so what a killed worker has written is there.
- *Chunks*, rows of a table, written through ``job.session``: they count only if the engine commits them.
"""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from typing import Any
from urllib.parse import quote

from sqlalchemy import text

from boxengine import Job
from tests.chaos.recorder import END

RECORD = "record"
"""The file of effects, in the worker's current folder."""
STEP = 0.2
"""Seconds between two effects of a job, at most."""
NO_KEY = "-"
WRITE_CHUNK = text("INSERT INTO chunks (job, token, number, lock_key) VALUES (:job, :token, :number, :key)")


def work(job: Job[Any]) -> None:
    """Works for ``args["seconds"]`` in ``args["chunks"]`` chunks, each kept by a checkpoint, the last by the job's end."""
    seconds, chunks, refusals = job.args["seconds"], job.args["chunks"], job.args["refusals"]
    leave_an_effect(job)
    if job.attempt <= refusals:
        job.retry(in_=0.1)
    for number in range(job.state or 0, chunks):
        _spend(job, seconds / chunks)
        key = job.lock_key or NO_KEY
        job.session.execute(WRITE_CHUNK, {"job": job.id, "token": job.token, "number": number, "key": key})
        if number + 1 < chunks:
            job.checkpoint(number + 1)


def leave_an_effect(job: Job[Any]) -> None:
    """What an outsider sees of the job."""
    asked = time.monotonic()
    job.ensure_held()
    key = quote(job.lock_key or NO_KEY, safe="")
    line = f"{asked:.6f} {time.monotonic():.6f} {os.getpid()} {job.id} {job.token} {key} {END}\n"
    os.write(_record(), line.encode())


def _spend(job: Job[Any], seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        _never.wait(min(STEP, left))
        leave_an_effect(job)


@cache
def _record() -> int:
    return os.open(RECORD, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)


_never = threading.Event()
