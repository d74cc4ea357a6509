"""Handlers of the consoles' job box."""

from __future__ import annotations

import threading
from typing import Any

from boxengine import Job


def export(job: Job[Any]) -> dict[str, Any]:
    """Counts to ``rows``, with a checkpoint after each; fails where ``fail`` says so."""
    for done in range(job.state or 0, job.args["rows"]):
        if done == job.args.get("fail"):
            raise RuntimeError("no answer from https://me:s3cret@shop.example/")
        job.checkpoint(done + 1)
        job.progress(done=done + 1, total=job.args["rows"])
    return {"rows": job.args["rows"]}


def until_canceled(job: Job[Any]) -> None:
    """Waits for somebody to cancel it."""
    job.progress(done=2, total=7)
    pause = threading.Event()
    while not job.cancelled:
        pause.wait(0.01)
