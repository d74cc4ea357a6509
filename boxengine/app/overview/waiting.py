"""Why an item waits: everything that stands between it and its delivery, most important first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from boxengine.app.overview.problems import reason_of
from boxengine.app.overview.views import BoxView
from boxengine.app.overview.words import counted, ellipsis, lasting, times
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import ItemRow
from boxengine.ports.people.inspection import Inspector
from boxengine.ports.people.items import PASSED
from boxengine.ports.people.log import BucketInLog, LogItems

AHEAD = 1_000
COUNTED_IN_LOG, OF_EACH = 1_600, 5
"""How many items in a log are counted, all buckets together; and of each bucket at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasons:
    """Why an item is in its current state."""

    sentences: tuple[str, ...]
    held_by: ItemRow | None = None
    """The item that it waits for."""
    due_at: datetime | None = None
    """It is delivered no earlier; None: it is due, or is not pending."""


def reasons(view: BoxView, row: ItemRow, inspector: Inspector, *, now: datetime) -> Reasons:
    """Why the row waits, as far as is known now.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    box = view.box
    match row.status:
        case Status.DELIVERED:
            return Reasons(sentences=("It does not wait: it was delivered.",))
        case Status.DISCARDED:
            return Reasons(sentences=("It does not wait: it was discarded, and will not be delivered.",))
        case Status.FAILED:
            return _failed(box, row, inspector)
        case Status.PENDING:
            return _pending(view, row, inspector, now)
        case _:
            return Reasons(sentences=(f"No worker will take it: its status, {row.status}, is not one of boxengine's.",))


def waiting_in_log(log: LogItems, box: Box) -> Sequence[BucketInLog]:
    """What waits in the log of a box by bucket, the oldest wait first.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    return log.waiting(box, limit=max(OF_EACH, COUNTED_IN_LOG // box.bucket_size))


def reasons_in_log(view: BoxView, row: ItemRow, inspector: Inspector, log: LogItems, *, now: datetime) -> Reasons:
    """Why a row that stands in the log alone waits, as far as is known now.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    if row.status == PASSED:
        return Reasons(
            sentences=(
                "It has been passed in the log: delivered, skipped, or deleted after it failed.",
                "A log keeps no outcome of single items.",
            )
        )
    held_by = inspector.holding_back(view.box, row)
    sentences = ["It waits in the log: no delivery has passed it yet.", *_obstacles(view, row, held_by, None, now)]
    ahead = log.ahead(view.box, row, limit=AHEAD)
    if ahead.number:
        stand = "stands" if ahead.number == 1 else "stand"
        sentences.append(f"{counted(ahead, 'item')} of its bucket {stand} before it in the log.")
    return Reasons(sentences=tuple(sentences), held_by=held_by)


def _failed(box: Box, row: ItemRow, inspector: Inspector) -> Reasons:
    sentences = [
        f"It failed {times(row.errors_count)} and is not retried automatically. Retry it when the cause is fixed, or discard it."
    ]
    if box.strict_order is StrictOrder.KEY:
        behind = inspector.followers(box, row, limit=AHEAD)
        if behind.number:
            sentences.append(f"{counted(behind, 'item')} of its key wait{'s' if behind.number == 1 else ''} for it.")
    return Reasons(sentences=tuple(sentences))


def _pending(view: BoxView, row: ItemRow, inspector: Inspector, now: datetime) -> Reasons:
    due_at = due(view.box, row)
    held_by = inspector.holding_back(view.box, row)
    waits = due_at is not None and due_at > now
    sentences = list(_obstacles(view, row, held_by, due_at if waits else None, now))
    ahead = inspector.ahead(view.box, row, limit=AHEAD)
    if ahead.number:
        sentences.append(
            f"{counted(ahead, 'pending item')} of its bucket stand{'s' if ahead.number == 1 else ''} before it in line."
        )
    if not sentences:
        sentences = ["Nothing holds it back: a worker is delivering it, or will in a moment."]
    return Reasons(sentences=tuple(sentences), held_by=held_by, due_at=due_at if waits else None)


def _obstacles(
    view: BoxView, row: ItemRow, held_by: ItemRow | None, due_at: datetime | None, now: datetime
) -> Iterator[str]:
    if view.workers is None:
        yield "Redis does not answer: without it, workers get no work."
    if view.paused:
        yield "The box is paused."
    elif view.workers == ():
        yield "No worker runs for this box."
    if held_by is not None:
        same = "bucket" if view.box.strict_order is StrictOrder.BUCKET else "key"
        yield (
            f"It waits for item {held_by.id} of the same {same}, which "
            + (
                f"failed {times(held_by.errors_count)}: {reason_of(held_by.error_log)}"
                if held_by.errors_count
                else "is delayed."
            )
        )
    for _, circuit in view.circuits:
        yield (
            f"{circuit.transport} has not reached its receiver for {lasting(now - circuit.since)}: "
            f"{ellipsis(circuit.reason, 160)}"
        )
    if due_at is not None:
        wait = lasting(due_at - now)
        if row.errors_count:
            yield f"It failed {times(row.errors_count)} and will be retried in {wait}: {reason_of(row.error_log)}"
        else:
            yield f"It was created for later: it is due in {wait}."


def due(box: Box, row: ItemRow) -> datetime | None:
    """When the row becomes deliverable; None: it already is."""
    moments = [row.available_at] if isinstance(row.available_at, datetime) else []
    if row.errors_count and isinstance(row.processed_at, datetime) and box.backoff is not None:
        moments.append(row.processed_at + box.backoff.pause(row.errors_count, row.id))
    return max(moments, default=None)
