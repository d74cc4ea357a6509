"""The events of long jobs, as log lines."""

from __future__ import annotations

import logging

from boxengine.adapters.telemetry.tags import JobWork
from boxengine.ports.jobs import JobEnded, JobEvent, JobsLeft, JobsReaped

logger = logging.getLogger("boxengine.jobs")
TOLD = 5
"""The most jobs whose ids a line names."""


def log_jobs(event: JobEvent) -> None:
    """What a person should know; an end that was expected is no line."""
    match event:
        case JobEnded(box=box, job=job, end="lost"):
            message = (
                "a job was lost before its end was recorded (attempt %d): its lease was over, this worker stops, or the database "
                "has no such claim any more; another attempt begins, if one is left"
            )
            tags = {**JobWork(box, [job]).tags, "seconds": round(event.seconds, 1)}
            logger.warning(message, job.attempt, extra=tags)
        case JobEnded(box=box, job=job, error=str(error)):
            outcome = "failed for good" if event.end == "failed" else "will be tried again"
            reason = error.strip().partition("\n")[0][:300]
            logger.warning("job %s (attempt %d): %s", outcome, job.attempt, reason, extra=JobWork(box, [job]).tags)
        case JobsReaped(box=box, requeued=requeued, lost=lost):
            message = "workers fell silent: %d of their jobs are queued again, %d are lost"
            logger.warning(message, requeued, lost, extra={"box": box.name})
        case JobsLeft(box=box, jobs=jobs):
            ids = ", ".join(str(job) for job in jobs[:TOLD])
            more = "" if len(jobs) <= TOLD else f" and {len(jobs) - TOLD} more"
            message = "the worker stops while jobs run: %s%s; when their leases are over, this attempt counts as failed"
            logger.warning(message, ids, more, extra={"box": box.name})
        case _:
            pass
