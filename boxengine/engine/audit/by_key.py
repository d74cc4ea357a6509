"""What the rows of one key show: their order, the gaps in their numbers, the bucket they are in.

Each key's rows are read from the latest to the earliest. So the state of a key is only a few rows, and deliveries during the
audit never look like faults: a row that is read as pending after a later one was read as delivered has been overtaken,
whatever happens to it afterwards.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import datetime

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Status, rfc3339
from boxengine.engine.audit.findings import Finding, Kind
from boxengine.errors import BoxError
from boxengine.ports.people.audit import AuditedRow, Replayed

KEYS_AT_ONCE = 64
"""How many keys are remembered. A database mixes the rows of keys that it treats as equal, but those are few: spellings of a
word."""
NUMBERS_NAMED = 3
"""How many of the missing numbers a finding names."""
_OPEN = {
    StrictOrder.NONE: frozenset({Status.PENDING}),
    StrictOrder.BUCKET: frozenset({Status.PENDING}),
    # In this order a failed item parks its key.
    StrictOrder.KEY: frozenset({Status.PENDING, Status.FAILED}),
}
"""The statuses of items that hold back the later ones of their key, or should have."""


class _Key:
    """What is known about the rows of one key that have been read, all of which are later than the next one."""

    __slots__ = ("first", "homes", "numbered", "unnumbered")

    def __init__(self) -> None:
        self.first: AuditedRow | None = None
        """The row that was delivered first."""
        self.homes: frozenset[int] | None = None
        """The buckets in which its rows may be; None: not computed yet."""
        self.numbered: AuditedRow | None = None
        """The earliest row that has a number."""
        self.unnumbered: AuditedRow | None = None
        """The earliest row without a number, since the last numbered one was read."""


class KeyChecks:
    """Finds inversions, gaps and rows in the wrong bucket."""

    def __init__(self, box: Box, *, numbered: bool, own_buckets: bool, complete_from: datetime) -> None:
        """Args:
        numbered: whether to look for gaps.
        own_buckets: whether the application chooses buckets by something other than the event key.
        complete_from: rows created since then (in UTC, without a time zone) are too young for retention to have deleted any.
        """
        self._box = box
        self._strict = box.strict_order is not StrictOrder.NONE
        self._open = _OPEN[box.strict_order]
        self._numbered = numbered
        self._own_buckets = own_buckets
        self._complete_from = complete_from
        self._keys: OrderedDict[str, _Key] = OrderedDict()

    def look(self, page: Sequence[AuditedRow]) -> Iterator[Finding]:
        """Checks the next rows, which come in the order of ``AuditStore.by_key``."""
        name, key = None, _Key()
        delivered = Status.DELIVERED
        for row in page:
            if row.event_key != name:
                name, key = row.event_key, self._key(row.event_key)
            first, at = key.first, row.processed_at
            if row.status != delivered:
                yield from self._undelivered(row, key)
            elif at is not None:
                if first is None or first.processed_at is None or at <= first.processed_at:
                    key.first = row
                elif self._promised(row):
                    yield _overtaken(row, first)
            if self._numbered and row.replayed != Replayed.COPY:  # it has its original's number
                yield from self._number(row, key)

    def _key(self, name: str) -> _Key:
        known = self._keys.get(name)
        if known is None:
            known = self._keys[name] = _Key()
            if len(self._keys) > KEYS_AT_ONCE:
                self._keys.popitem(last=False)
        return known

    def _undelivered(self, row: AuditedRow, key: _Key) -> Iterator[Finding]:
        if row.status in self._open and key.first is not None and self._promised(row):
            yield _overtaken(row, key.first)
        if row.status in (Status.PENDING, Status.FAILED):
            yield from self._bucket(row, key)

    def _promised(self, row: AuditedRow) -> bool:
        """Whether the box promises to deliver it before the later ones of its key."""
        if row.replayed == Replayed.AGAIN:
            return False  # when it was first delivered is no longer known
        return self._strict or not row.may_wait

    def _bucket(self, row: AuditedRow, key: _Key) -> Iterator[Finding]:
        size = self._box.bucket_size
        if not 0 <= row.bucket < size:
            detail = f"is in bucket {row.bucket}, and the box has 0 to {size - 1}: nobody will deliver it"
            yield Finding(Kind.ORPHANED, row.id, row.event_key, detail)
        elif not self._own_buckets:
            if key.homes is None:
                key.homes = homes(self._box, row.event_key)
            if row.bucket not in key.homes:
                right = ", ".join(map(str, sorted(key.homes)))
                detail = f"is in bucket {row.bucket}, and its key belongs into {right}: out of order with the rest of its key"
                yield Finding(Kind.ORPHANED, row.id, row.event_key, detail)

    def _number(self, row: AuditedRow, key: _Key) -> Iterator[Finding]:
        if row.seq is None:
            key.unnumbered = row
            return
        if key.unnumbered is not None:
            detail = f"has no number, though item {row.id} of its key before it has number {row.seq}"
            yield Finding(Kind.GAP, key.unnumbered.id, row.event_key, detail)
            key.unnumbered = None
        later, key.numbered = key.numbered, row
        if later is None or later.seq is None or later.seq == row.seq + 1:
            return
        if later.seq <= row.seq:
            detail = f"has number {later.seq}, and item {row.id} of its key before it has number {row.seq}"
            yield Finding(Kind.GAP, later.id, later.event_key, detail)
        elif row.created_at >= self._complete_from:
            yield Finding(Kind.GAP, later.id, later.event_key, _missing_numbers(row.seq + 1, later.seq - 1, row))


def homes(box: Box, event_key: str) -> frozenset[int]:
    """The buckets in which rows of this key may be.

    The application may have passed the key as a number, which a strategy may treat differently from its text.

    Raises:
        BoxError: the strategy does not accept the key.
    """
    keys: list[object] = [event_key]
    if event_key.removeprefix("-").isdecimal() and event_key.isascii():
        keys.append(int(event_key))
    try:
        return frozenset(box.partition_strategy(key, box.bucket_size) for key in keys)
    except Exception as error:  # a strategy is user code
        raise BoxError(
            f"box {box.name}: its partition strategy does not take the key {event_key!r} as the table has it "
            f"({type(error).__name__}: {error}); with --own-buckets buckets are not compared with keys"
        ) from error


def _overtaken(row: AuditedRow, by: AuditedRow) -> Finding:
    when = "is not delivered yet" if row.status != Status.DELIVERED else f"was delivered {_text(row.processed_at)}"
    detail = f"{when}, and item {by.id} of its key was delivered before it, {_text(by.processed_at)}"
    return Finding(Kind.INVERSION, row.id, row.event_key, detail)


def _missing_numbers(first: int, last: int, before: AuditedRow) -> str:
    named = ", ".join(map(str, range(first, last + 1)[:NUMBERS_NAMED]))
    more = f" to {last}" if last - first >= NUMBERS_NAMED else ""
    return f"has number {last + 1}; {named}{more} of its key are missing after item {before.id}"


def _text(moment: datetime | None) -> str:
    return "at an unknown time" if moment is None else rfc3339(moment)
