"""The events of long jobs, as log lines."""

from __future__ import annotations

import logging

from boxengine.ports.jobs import JobEnded, JobEvent, JobsLeft, JobsReaped

logger = logging.getLogger("boxengine.jobs")
TOLD = 5
"""The most jobs whose ids a line names."""


def log_jobs(event: JobEvent) -> None:
    """What a person should know; an end that was expected is no line."""
    match event:
        case JobEnded(box=box, end="lost"):
            message = (
                "a job was lost before its end was recorded (attempt %d): its lease was over, this worker stops, or the database "
                "has no such claim any more; another attempt begins, if one is left"
            )
            tags: dict[str, object] = {"box": box.name, "job": event.job, "seconds": round(event.seconds, 1)}
            logger.warning(message, event.attempt, extra=tags)
        case JobEnded(box=box, error=str(error)):
            outcome = "failed for good" if event.end == "failed" else "will be tried again"
            reason = error.strip().partition("\n")[0][:300]
            tags = {"box": box.name, "job": event.job}
            logger.warning("job %s (attempt %d): %s", outcome, event.attempt, reason, extra=tags)
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
