"""Items whose attempts failed, and how many others strict order makes wait for each."""

from __future__ import annotations

from boxengine.app.overview.facts import Stuck
from boxengine.app.overview.waiting import due
from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status
from boxengine.ports import Count, Counts, ItemFilter, ItemRow
from boxengine.ports.people.inspection import Inspector, Towards

FAILED = ItemFilter(statuses=frozenset({Status.FAILED}))
LOOKED_AT = 200
"""For how many failed items, newest first, reasons are read."""
BLOCKERS = 5
"""For how many items that hold others back the followers are counted."""
FOLLOWERS = 200


def stuck_items(inspector: Inspector, box: Box, counts: Counts) -> tuple[Stuck, ...]:
    """Items that failed, and how many others they hold back."""
    rows = list[ItemRow]()
    if _some(counts.failed):
        rows += inspector.find(box, FAILED, start=None, towards=Towards.OLDER, limit=LOOKED_AT).rows
    if _some(counts.retrying):
        rows += inspector.tried(box, limit=LOOKED_AT)
    if box.strict_order is StrictOrder.NONE:
        return tuple(Stuck(row, None, due_at=due(box, row)) for row in rows)
    first: dict[object, Stuck] = {}
    for row in sorted(rows, key=lambda each: each.id):
        place = row.bucket if box.strict_order is StrictOrder.BUCKET else row.event_key
        if place not in first:
            behind = inspector.followers(box, row, limit=FOLLOWERS) if len(first) < BLOCKERS else None
            first[place] = Stuck(row, behind, leads=True, due_at=due(box, row))
    leading = {stuck.row.id for stuck in first.values()}
    return (*first.values(), *(Stuck(row, None) for row in rows if row.id not in leading))


def _some(count: Count | None) -> bool:
    """Whether there may be some."""
    return count is None or count.number > 0
