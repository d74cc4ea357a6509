"""What a worker says about itself, as the JSON object that stands in Redis or in the database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from boxengine.ports import Engagement, OpenCircuit, WorkerInfo


def encoded(worker: WorkerInfo) -> dict[str, Any]:
    """The worker as values that JSON can hold."""
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "boxes": worker.boxes,
        "threads": worker.threads,
        "started_at": worker.started_at.isoformat(),
        "circuits": [
            {
                "box": circuit.box,
                "transport": circuit.transport,
                "since": circuit.since.isoformat(),
                "next_try": None if circuit.next_try is None else circuit.next_try.isoformat(),
                "reason": circuit.reason,
            }
            for circuit in worker.circuits
        ],
        "version": worker.version,
        "at_work": None
        if worker.at_work is None
        else [{"box": each.box, "threads": each.threads, "since": each.since.isoformat()} for each in worker.at_work],
        "database": worker.database,
        "job_boxes": worker.job_boxes,
    }


def decoded(fields: Any) -> WorkerInfo | None:
    """The worker; None if another program wrote the value."""
    try:
        return WorkerInfo(
            id=fields["id"],
            host=fields["host"],
            pid=fields["pid"],
            boxes=tuple(fields["boxes"]),
            threads=fields["threads"],
            started_at=_moment(fields["started_at"]),
            # Workers of an earlier version do not say.
            circuits=tuple(map(_circuit, fields.get("circuits", ()))),
            version=fields.get("version"),
            at_work=None if fields.get("at_work") is None else tuple(map(_engagement, fields["at_work"])),
            database=fields.get("database"),
            job_boxes=tuple(fields.get("job_boxes", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None


def _circuit(fields: dict[str, Any]) -> OpenCircuit:
    next_try = fields["next_try"]
    return OpenCircuit(
        box=fields["box"],
        transport=fields["transport"],
        since=_moment(fields["since"]),
        next_try=None if next_try is None else _moment(next_try),
        reason=fields["reason"],
    )


def _engagement(fields: dict[str, Any]) -> Engagement:
    return Engagement(box=fields["box"], threads=fields["threads"], since=_moment(fields["since"]))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
