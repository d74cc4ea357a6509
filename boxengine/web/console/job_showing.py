"""Long jobs as JSON, the same for the API and for pages."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

from boxengine.adapters.contracts import is_encoded, readable
from boxengine.app.overview import JobBoxView, JobReasons
from boxengine.app.overview.problems import reason_of
from boxengine.domain.jobs import JobState
from boxengine.domain.masking import MASK, masked_text
from boxengine.ports.people.jobs import JobCounts, JobRow
from boxengine.web.console import showing
from boxengine.web.console.hiding import Hiding, ShownPayload

MOMENTS = ("created_at", "available_at", "started_at", "finished_at", "heartbeat_at", "lease_expires_at")


class Advance(NamedTuple):
    """A progress bar."""

    value: float
    of: float
    text: str


def state(row: JobRow, box_name: str, hiding: Hiding) -> dict[str, Any]:
    """The state of a job."""
    return {
        "task": row["task"],
        "status": row["status"],
        "attempt": row["attempt"],
        "max_attempts": row["max_attempts"],
        **{name: showing.moment(row[name]) for name in MOMENTS if name != "lease_expires_at"},
        "cancel_requested": bool(row["cancel_requested"]),
        "progress": hiding.value(box_name, row["progress"] or {}),
        "result": kept(row["result"], box_name, hiding),
        "error": None if row["error"] is None else masked_text(row["error"]),
    }


def row(found: JobRow) -> dict[str, Any]:
    """One job of a list."""
    return {
        "id": found["id"],
        "task": found["task"],
        "status": found["status"],
        "attempt": found["attempt"],
        "max_attempts": found["max_attempts"],
        "priority": found["priority"],
        "lock_key": found["lock_key"],
        "idempotency_key": found["idempotency_key"],
        "created_at": showing.moment(found["created_at"]),
        "reason": masked_text(reason_of(found["error"])) if found["error"] else None,
    }


def whole(found: JobRow, journal: Sequence[JobRow], why: JobReasons, box_name: str, hiding: Hiding) -> dict[str, Any]:
    """One job, with everything that may be shown of it."""
    return {
        "id": found["id"],
        **state(found, box_name, hiding),
        **{name: found[name] for name in ("priority", "lock_key", "idempotency_key", "partition_key", "lease_ttl")},
        **{name: found[name] for name in ("producer", "consumer_group", "worker", "token")},
        "lease_expires_at": showing.moment(found["lease_expires_at"]),
        "trace_id": showing.trace_named_by(found["trace_context"]),
        "args": kept(arguments(found["args"]), box_name, hiding),
        "checkpoint": kept(found["checkpoint"], box_name, hiding),
        "why": list(why.sentences),
        "held_by": why.held_by,
        "waits_for": list(why.waits_for),
        "journal": [
            {
                "ts": showing.moment(event["ts"]),
                "kind": event["kind"],
                "payload": hiding.value(box_name, event["payload"]),
            }
            for event in journal
        ],
    }


def arguments(stored: Any) -> Any:
    """A job's arguments, decoded, so that hidden key paths apply; a payload that stays encoded is masked as a whole."""
    found = readable(stored)
    return {**found, "msgpack": MASK} if is_encoded(found) else found


def kept(value: Any, box_name: str, hiding: Hiding) -> Any:
    """A stored value (arguments, checkpoint or result), as far as it may be shown."""
    return None if value is None else hiding.stored(box_name, value)


def drawn(value: Any, box_name: str, hiding: Hiding) -> ShownPayload | None:
    """A stored value as a page shows it; None: there is none."""
    if value is None:
        return None
    # A program in another language may have written lone surrogates into a text column.
    payload = json.dumps(value, ensure_ascii=False).encode(errors="replace")
    if isinstance(value, int | float) and not hiding.hides(box_name):
        return ShownPayload("json", payload.decode(), len(payload))
    return hiding.payload(box_name, payload)


def advance(progress: Any) -> Advance | None:
    """The progress a handler reports, from its numbers ``done`` and ``total``, or ``percent``."""
    if not isinstance(progress, dict):
        return None
    done, total = progress.get("done"), progress.get("total")
    if _is_number(done) and _is_number(total) and total > 0:
        return Advance(min(max(done, 0), total), total, f"{done:,} of {total:,}")
    percent = progress.get("percent")
    return Advance(min(max(percent, 0), 100), 100, f"{percent:g} %") if _is_number(percent) else None


def box(view: JobBoxView) -> dict[str, Any]:
    """One box of long jobs."""
    return {
        "id": view.box.url_name,
        "name": view.box.name,
        "type": "job",
        "paused": view.paused,
        "counted_at": showing.moment(view.counted_at),
        "counts": None if view.counts is None else counts(view.counts),
        "workers": None if view.workers is None else [each.id for each in view.workers],
        "problems": [showing.problem(each) for each in view.problems],
    }


def counts(found: JobCounts) -> dict[str, Any]:
    """The numbers of a box's jobs, as far as they were counted."""
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


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
