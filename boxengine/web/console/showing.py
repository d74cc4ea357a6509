"""Views as JSON, the same for the API and for pages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from boxengine.app.overview import BoxView, Overview, Problem, Reasons
from boxengine.app.overview.problems import reason_of
from boxengine.domain.item import rfc3339
from boxengine.domain.masking import masked_text
from boxengine.ports import Count, ItemRow, WorkerInfo
from boxengine.ports.people.attempts import Attempt
from boxengine.ports.people.history import Happened, Slot, Span
from boxengine.ports.people.items import status_name
from boxengine.ports.people.log import BucketInLog
from boxengine.web.console.hiding import Hiding

COUNTED = ("pending", "retrying", "failed", "delivered", "discarded")
_TRACE = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-")


def overview(look: Overview) -> dict[str, Any]:
    """The whole look."""
    return {
        "taken_at": rfc3339(look.taken_at),
        "problems": [problem(each) for each in look.problems],
        "outages": list(look.outages),
        "boxes": [box(view, look.taken_at) for view in look.boxes],
        "workers": None if look.workers is None else [worker(each) for each in look.workers],
    }


def box(view: BoxView, now: datetime) -> dict[str, Any]:
    """One box."""
    return {
        "id": view.box.url_name,
        "name": view.box.name,
        "type": str(view.box.type),
        "counts": None if view.counts is None else {name: count(getattr(view.counts, name)) for name in COUNTED},
        "counted_at": moment(view.counted_at),
        "waits_since": moment(view.waits_since),
        "oldest_pending_seconds": None if view.waited is None else round(view.waited.total_seconds(), 1),
        "delivered_per_second": None if view.rate is None else round(view.rate, 2),
        "wait_p50_seconds": None if view.lately is None else view.lately.wait(0.5),
        "wait_p99_seconds": None if view.lately is None else view.lately.wait(0.99),
        "queue": view.queue_length,
        "queue_lag_seconds": seconds(now, view.queue_since),
        "paused": view.paused,
        "workers": None if view.workers is None else [each.id for each in view.workers],
        "circuits": [
            {
                "transport": circuit.transport,
                "worker": info.id,
                "since": rfc3339(circuit.since),
                "next_try": moment(circuit.next_try),
                "reason": masked_text(circuit.reason),
            }
            for info, circuit in view.circuits
        ],
        "problems": [problem(each) for each in view.problems],
    }


def transports(happened: Happened, lasts: timedelta) -> list[dict[str, Any]]:
    """Figures of a box's transports, the slowest first."""
    slowest_first = sorted(happened.transports.items(), key=lambda each: -each[1].per_call)
    return [
        {
            "transport": name,
            "seconds_per_call": round(calls.per_call, 6),
            "items_per_call": round(calls.items / calls.calls, 1) if calls.calls else None,
            "items_per_second": round(calls.items / lasts.total_seconds(), 2),
            "failed": calls.failed,
        }
        for name, calls in slowest_first
    ]


def history(slots: Sequence[Slot], span: Span) -> dict[str, Any]:
    """Columns for charts."""
    step = span.step.total_seconds()
    return {
        "step_seconds": step,
        "at": [int(slot.at.timestamp()) for slot in slots],
        "delivered_per_second": [round(slot.happened.delivered / step, 3) for slot in slots],
        "failed_per_second": [round(slot.happened.failed / step, 3) for slot in slots],
        "wait_p50_seconds": [slot.happened.wait(0.5) for slot in slots],
        "wait_p99_seconds": [slot.happened.wait(0.99) for slot in slots],
        "oldest_wait_seconds": [slot.oldest_wait for slot in slots],
        "transports": transports(sum((slot.happened for slot in slots), Happened()), span.slots * span.step),
    }


def problem(found: Problem) -> dict[str, Any]:
    """One thing that is wrong."""
    return {
        "kind": found.kind,
        "severity": found.severity.name.lower(),
        "sentence": masked_text(found.sentence),
        "advice": found.advice,
        "box": found.box,
        "item": found.item,
    }


def worker(info: WorkerInfo) -> dict[str, Any]:
    """One worker process."""
    return {
        "id": info.id,
        "host": info.host,
        "pid": info.pid,
        "version": info.version,
        "threads": info.threads,
        "started_at": rfc3339(info.started_at),
        "boxes": list(info.boxes),
        "job_boxes": list(info.job_boxes),
        "at_work": None
        if info.at_work is None
        else [{"box": each.box, "threads": each.threads, "since": rfc3339(each.since)} for each in info.at_work],
    }


def item(row: ItemRow) -> dict[str, Any]:
    """One row of a list."""
    return {
        "id": row.id,
        "uuid": row.uuid,
        "event_name": row.event_name,
        "event_key": row.event_key,
        "bucket": row.bucket,
        "status": status_name(row.status),
        "errors_count": row.errors_count,
        "created_at": moment(row.created_at),
        "processed_at": moment(row.processed_at),
        "available_at": moment(row.available_at),
        "dedup_key": row.dedup_key,
        "reason": masked_text(reason_of(row.error_log)) if row.error_log else None,
    }


def whole_item(
    row: ItemRow, box_name: str, why: Reasons, hiding: Hiding, attempts: Sequence[Attempt] | None
) -> dict[str, Any]:
    """One item, with everything that may be shown of it; ``attempts`` is None if they are unknown."""
    payload = hiding.payload(box_name, row.payload or b"")
    return {
        **item(row),
        "options": hiding.value(box_name, options_of(row)) if row.options else None,
        "error_log": None if row.error_log is None else masked_text(row.error_log),
        "payload": {"kind": payload.kind, "text": payload.text, "bytes": payload.size, "cut": payload.cut},
        "attempts": None
        if attempts is None
        else [{"at": rfc3339(each.at), "number": each.number, "reason": masked_text(each.reason)} for each in attempts],
        "why": list(why.sentences),
        "held_by": None if why.held_by is None else why.held_by.id,
        "due_at": moment(why.due_at),
        "trace_id": trace_of(row),
    }


def options_of(row: ItemRow) -> Any:
    """The item's options as a JSON value, whatever its type."""
    return dict(row.options) if isinstance(row.options, Mapping) else row.options


def trace_of(row: ItemRow) -> str | None:
    """The id of the trace in which the item was created."""
    return trace_named_by(row.options.get("headers") if isinstance(row.options, Mapping) else None)


def trace_named_by(headers: Any) -> str | None:
    """The id of the trace that stored headers name, whatever somebody has stored there."""
    parent = headers.get("traceparent") if isinstance(headers, dict) else None
    found = _TRACE.match(parent) if isinstance(parent, str) else None
    return found[1] if found else None


def bucket_in_log(found: BucketInLog) -> dict[str, Any]:
    """What waits in the log of one bucket."""
    return {
        "bucket": found.bucket,
        "waiting": count(found.waiting),
        "first": found.first,
        "since": moment(found.since),
    }


def count(found: Count | None) -> dict[str, Any] | None:
    """A number and how far it can be trusted."""
    return None if found is None else {"number": found.number, "precision": str(found.precision)}


def moment(found: datetime | str | None) -> str | None:
    """A moment as text; a value that could not be read as a moment is returned as it is."""
    return rfc3339(found) if isinstance(found, datetime) else found


def seconds(now: datetime, since: datetime | None) -> float | None:
    return None if since is None else max(0.0, round((now - since).total_seconds(), 1))
