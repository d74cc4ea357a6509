"""The life of each item of a history, gathered from its record."""

from __future__ import annotations

from dataclasses import dataclass, field

from boxengine.adapters.memory.rows import Row
from boxengine.domain.item import Status
from tests.simulation.record import Change, ClaimRecord, Record, Send
from tests.simulation.scenario import RESTORED


@dataclass(slots=True, eq=False)
class ItemLife:
    """One item, from its insertion to its end."""

    id: int
    key: str
    bucket: int
    event_name: str
    routes: tuple[str, ...]
    inserted: int
    """Step."""
    last: Row
    """The row as it was last seen."""
    deleted: bool = False
    changes: list[Change] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    first: dict[str, Send] = field(default_factory=dict)
    """By transport, its first delivery."""
    complete: Send | None = None
    """That with which the last of its transports had it."""
    delivery: Change | None = None
    """The last one; None also for an item that a person has had delivered again, until it is."""
    deliveries: list[int] = field(default_factory=list)
    """The step of each."""
    failed_claims: list[ClaimRecord] = field(default_factory=list)

    def row_at(self, step: int) -> Row | None:
        """The row as it was committed at a step."""
        row = None
        for change in self.changes:
            if change.step > step:
                break
            row = change.after
        return row

    def attempt_failed_by(self, step: int) -> bool:
        """Whether an attempt at it had failed, or may have."""
        return any(claim.opened <= step for claim in self.failed_claims)


def lives(record: Record, box: str) -> dict[int, ItemLife]:
    """All items of a box by id."""
    known: dict[int, ItemLife] = {}
    for change in record.changes:
        if change.box == box:
            _take_in(record, known, change)
    for claim in record.claims:
        if claim.box == box:
            for item in claim.failures:
                known[item].failed_claims.append(claim)
    for send in record.sends:
        if send.claim.box != box:
            continue
        life = known[send.item]
        life.sends.append(send)
        if send.transactional and not (send.claim.committed and send.acknowledged):
            continue
        life.first.setdefault(send.transport, send)
        if life.complete is None and len(life.first) == len(life.routes):
            life.complete = send
    return known


def _take_in(record: Record, known: dict[int, ItemLife], change: Change) -> None:
    row = change.after or change.before
    if row is None:
        return
    life = known.get(row.id)
    if life is None:
        event_name = row.event_name or ""
        life = known[row.id] = ItemLife(
            id=row.id,
            key=row.event_key,
            bucket=row.bucket,
            event_name=event_name,
            routes=record.routes[change.box][event_name],
            inserted=change.step,
            last=row,
        )
    life.changes.append(change)
    life.deleted = change.after is None
    life.last = row
    at_delivery = change.after is not None and change.after.status == Status.DELIVERED
    if change.by == RESTORED:
        life.delivery = life.delivery if at_delivery else None
    elif at_delivery or (change.after is None and change.by == "engine"):
        life.delivery = change
        if change.before is None or change.before.status != Status.DELIVERED:
            life.deliveries.append(change.step)
    elif change.by == "operator" and change.after is not None and change.after.status == Status.PENDING:
        life.delivery = None
