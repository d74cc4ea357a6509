"""Long jobs as JSON, the same for the API and for pages."""

from __future__ import annotations

from typing import Any

from boxengine.domain.jobs import JobState
from boxengine.domain.masking import masked_text
from boxengine.ports.people.jobs import JobCounts, JobRow
from boxengine.web.console import showing
from boxengine.web.console.hiding import Hiding

MOMENTS = ("created_at", "available_at", "started_at", "finished_at", "heartbeat_at", "lease_expires_at")


def state(row: JobRow, box_name: str, hiding: Hiding) -> dict[str, Any]:
    """Where a job stands."""
    return {
        "task": row["task"],
        "status": row["status"],
        "attempt": row["attempt"],
        "max_attempts": row["max_attempts"],
        **{name: showing.moment(row[name]) for name in MOMENTS if name != "lease_expires_at"},
        "cancel_requested": bool(row["cancel_requested"]),
        "progress": hiding.value(box_name, row["progress"] or {}),
        "result": None if hiding.hides(box_name) else hiding.value(box_name, row["result"]),
        "error": None if row["error"] is None else masked_text(row["error"]),
    }


def counts(found: JobCounts) -> dict[str, Any]:
    """A box's jobs, as far as they were counted."""
    numbers = {
        "total": found.total,
        "ready": found.ready,
        "taken": found.taken,
        "delayed": found.delayed,
        "blocked": found.blocked,
    }
    numbers |= {str(each): found.ended[each] for each in JobState if each in found.ended}
    return {
        **{name: showing.count(number) for name, number in numbers.items()},
        "lag_seconds": None if found.waits is None else round(found.waits.total_seconds(), 1),
    }
