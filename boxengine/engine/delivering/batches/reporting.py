"""What a delivered batch tells its drain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from operator import itemgetter

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import Settlement
from boxengine.engine.delivering.calls.sent import Sent
from boxengine.engine.delivering.work import Report
from boxengine.ports import PlainClaim

_BUCKET = itemgetter(Item._fields.index("bucket"))
_PAYLOAD = itemgetter(Item._fields.index("payload"))


def report(
    box: Box,
    claim: PlainClaim,
    settlement: Settlement,
    positions: Mapping[int, ItemId | None],
    sent: Sent | None,
    *,
    sending: float = 0.0,
    goes_on: bool = False,
    at_rest: bool = False,
) -> Report:
    """The report of a batch.

    Args:
        settlement: what is recorded.
        positions: by bucket, the id after which the batch read.
        sent: None where nothing was to be sent.
        sending: seconds that the transports took.
        goes_on: whether the next batch reads something else, although this one may have recorded nothing.
        at_rest: whether items were left out because the database refused their outcomes.
    """
    items, exhausted = claim.items, claim.exhausted
    # Always read on from the old position, and not from the last id. A row with a lower id may be committed after this claim,
    # or, under strict order, come due again; its follower must not be met first. Settled rows are not pending any more, so
    # reading from the old position costs nothing.
    read_on = {bucket: positions[bucket] for bucket in set(map(_BUCKET, items))}
    skipped = frozenset[int]()
    if len(settlement) < len(items):
        touched = set(settlement.ids)
        rest = [item for item in items if item.id not in touched]
        unsent = {item.bucket for item in rest if item.processed_at is None}
        exhausted -= unsent
        if box.strict_order is StrictOrder.NONE:
            # Rows that a strategy skipped stay due, and would stand before all others in the next batch again.
            skipped = frozenset(item.bucket for item in rest) - unsent
            read_on.update({item.bucket: item.id for item in items if item.bucket in skipped})
    return Report(
        claimed=len(items),
        positions=read_on,
        refused=claim.refused,
        locked=claim.locked,
        exhausted=exhausted,
        next_due=_next_due(box, items, settlement),
        progressed=bool(settlement) or not items or bool(skipped) or goes_on,
        at_rest=at_rest and not settlement,
        weight=_weight(items),
        sending=sending,
        unreachable={} if sent is None else sent.unreachable,
        reached=() if sent is None else sent.reached,
    )


def _weight(items: Sequence[Item]) -> int:
    """Bytes of their payloads."""
    payloads = list(map(_PAYLOAD, items))
    return sum(map(len, filter(None, payloads) if None in payloads else payloads))


def _next_due(box: Box, items: Sequence[Item], settlement: Settlement) -> Mapping[int, timedelta]:
    if not settlement.failed or box.backoff is None:
        return {}
    buckets = {item.id: item.bucket for item in items}
    due: dict[int, timedelta] = {}
    for attempt in settlement.failed:
        if attempt.status is Status.PENDING:
            pause = box.backoff.pause(attempt.errors_count, attempt.id)
            bucket = buckets[attempt.id]
            due[bucket] = min(pause, due.get(bucket, pause))
    return due
