"""One claim's look at the log: which of the rows that were found it may give, and what is known of each bucket then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from boxengine.adapters.sql.connecting.cursors import Cursor
from boxengine.adapters.sql.dialects.base import ROW_FIELDS, Row
from boxengine.adapters.sql.dialects.postgresql_texts import numbers
from boxengine.domain.item import Item
from boxengine.domain.log_progress import Portions, Position, Reading, SortedOut

_PARKED = ROW_FIELDS
"""Behind an item's fields, under strict order by key alone."""
_ID = 0
_id_of, _bucket_of = itemgetter(_ID), itemgetter(Item._fields.index("bucket"))
_LIMITS_BY_ID = 2
"""How often a question by id asks for its limit."""
Fetch = Callable[[Cursor], tuple[list[Row], dict[int, str]]]
"""The rows of an answer, and by id why some cannot be read."""


class Questions(NamedTuple):
    """What a look asks of some buckets once it has seen their first rows. The texts are those of ``reading``."""

    measure: str
    measured_rows: str
    followed: str


class Held(NamedTuple):
    """The positions of a claim's buckets."""

    snapshot: str
    """Of the statement that read them."""
    positions: Sequence[Position]
    """Of the buckets whose log may be read."""
    under_way: int
    """How many buckets are in the middle of a batch."""


@dataclass(slots=True)
class Seen:
    """What a look has found."""

    rows: list[Row] = field(default_factory=list)
    """Without those that must wait for others of their key."""
    readings: dict[int, Reading] = field(default_factory=dict)
    """By bucket."""
    unread: frozenset[int] = frozenset()
    """Buckets to which the claim has not come."""
    unreadable: dict[int, str] = field(default_factory=dict)
    """By id, why a row cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Made for one claim; its cursor is in the claim's transaction."""

    cursor: Cursor
    questions: Questions
    fetch: Fetch
    portions: Portions
    parks: bool
    """Whether rows may have to wait for others of their key."""

    def at(self, held: Held, rows: Sequence[Row]) -> Seen:
        """Args:
        rows: what ``ReadingTexts.next_rows`` has found.
        """
        of_bucket = _by_bucket(rows)
        beginning = [each.bucket for each in held.positions if each.floor is None]
        sorted_out = self.portions.beside(held.under_way).sort_out(_counts(of_bucket, beginning))
        seen = Seen(unread=sorted_out.unread)
        bounds = self._measured(sorted_out, of_bucket, seen.unreadable)
        for position in held.positions:
            bucket = position.bucket
            if bucket not in sorted_out.unread:
                found = of_bucket.get(bucket, [])
                upto, large = position.batch or held.snapshot, sorted_out.large.get(bucket)
                seen.readings[bucket] = self._reading(position, upto, found, large, bounds.get(bucket))
                seen.rows += found
        self._look_behind(seen.readings)
        if self.parks:
            seen.rows = [row[:ROW_FIELDS] for row in seen.rows if not row[_PARKED]]
        return seen

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def _reading(
        self, position: Position, upto: str, rows: list[Row], large: int | None, bounds: tuple[int, int] | None
    ) -> Reading:
        """Describes the rows that were read of a bucket, and cuts them down to those that a claim may give.

        Args:
            large: how many, of a bucket that has just been measured.
        """
        rows.sort(key=_id_of)
        if large is not None:
            most, complete = large, False
        elif position.floor is not None:
            most, complete = self.portions.share, len(rows) < self.portions.share
        else:
            most, complete = len(rows), True
        floor, ceiling = bounds or (position.floor, position.ceiling)
        del rows[most:]
        return Reading(
            position=position,
            upto=upto,
            ids=list(map(_id_of, rows)),
            parked=frozenset(row[_ID] for row in rows if row[_PARKED]) if self.parks else frozenset(),
            complete=complete,
            followed=position.batch is not None,
            floor=floor,
            ceiling=ceiling,
        )

    def _measured(
        self, sorted_out: SortedOut, of_bucket: dict[int, list[Row]], unreadable: dict[int, str]
    ) -> dict[int, tuple[int, int]]:
        """Measures batches that are larger than a claim, and reads their first rows unless it is those that were found."""
        if not sorted_out.large:
            return {}
        last: dict[int, int] = {}
        for bucket, number in sorted_out.large.items():
            of_bucket[bucket].sort(key=_id_of)
            last[bucket] = of_bucket[bucket][number - 1][_ID]
        self.cursor.execute(self.questions.measure, (numbers(last), numbers(last.values())))
        bounds: dict[int, tuple[int, int]] = {}
        others: dict[int, tuple[int, int]] = {}
        for bucket, first, ceiling, not_above in self.cursor.fetchall():
            bounds[bucket] = (ceiling if first is None else first - 1, ceiling)
            if not_above > sorted_out.large[bucket]:
                others[bucket] = bounds[bucket]
        if others:
            floors, ceilings = zip(*others.values(), strict=True)
            most = max(map(sorted_out.large.__getitem__, others))
            values = (numbers(others), numbers(floors), numbers(ceilings), *[most] * _LIMITS_BY_ID)
            self.cursor.execute(self.questions.measured_rows, values)
            found, reasons = self.fetch(self.cursor)
            unreadable |= reasons
            of_bucket.update({bucket: [] for bucket in others} | _by_bucket(found))
        return bounds

    def _look_behind(self, readings: dict[int, Reading]) -> None:
        """Finds out whether anything follows the batches that end here, so that no further claim need ask for nothing."""
        ending = [bucket for bucket, reading in readings.items() if reading.complete and reading.followed]
        if not ending:
            return
        self.cursor.execute(self.questions.followed, (numbers(ending),), prepare=True)
        followed = {bucket for (bucket,) in self.cursor.fetchall()}
        for bucket in ending:
            readings[bucket] = replace(readings[bucket], followed=bucket in followed)


def _by_bucket(rows: Iterable[Row]) -> dict[int, list[Row]]:
    # Rows of one bucket are adjacent, except rows of transactions that ended late.
    found: dict[int, list[Row]] = {}
    for bucket, neighbours in groupby(rows, _bucket_of):
        found.setdefault(bucket, []).extend(neighbours)
    return found


def _counts(of_bucket: Mapping[int, Sequence[Row]], buckets: Collection[int]) -> dict[int, int]:
    """How many rows were found of each of these buckets; those with rows in the order in which they were read."""
    known = set(buckets)
    found = {bucket: len(rows) for bucket, rows in of_bucket.items() if bucket in known}
    return found | {bucket: 0 for bucket in buckets if bucket not in found}
