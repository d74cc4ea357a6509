"""How far a log's bucket has been processed, what a claim returns from it, and how far a settlement advances it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Self, TypeVar

PARTS = 4
"""No bucket that begins a batch takes more than this part of a claim, if that has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far one bucket has been passed: all rows visible in ``passed``, and the batch's rows up to ``place``."""

    bucket: int
    passed: str
    """A snapshot in PostgreSQL's text form."""
    batch: str | None = None
    """The later snapshot, which ends the current batch; None between two batches."""
    place: int = 0
    """The last id passed of that batch."""
    floor: int | None = None
    """For a batch that is read by id: below this id there are only rows of transactions that ran when ``passed`` was taken."""
    ceiling: int | None = None
    """For a batch that is read by id: its highest id."""
    high: int = 0
    """The highest id ever passed: the only guide once transaction numbers have lost their meaning."""
    turn: int = 0
    """Rises with every move, so that nobody moves on from an outdated position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a claim has read of one bucket's log."""

    position: Position
    upto: str
    """The snapshot that ends the batch."""
    ids: Sequence[int] = ()
    """In order, starting after ``place``, with none omitted before the last."""
    parked: frozenset[int] = frozenset()
    """The ids that must wait in the side table for others of their key."""
    complete: bool = False
    """Whether the batch has no rows after these."""
    followed: bool = False
    """Whether rows may have been committed since the batch's snapshot."""
    floor: int | None = None
    ceiling: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What a settlement does to one bucket of the log."""

    position: Position
    aside: Sequence[int]
    """Rows passed without an outcome: they are copied to the side table as pending and untried."""


def move(reading: Reading, settled: Collection[int] | None, aside: Collection[int] = ()) -> Move | None:
    """The bucket's move once these rows have their outcomes, or all of them if it is None; None if it does not move.

    Rows without an outcome step aside if later rows have one; otherwise they stay in the log. Parked rows, and those in
    ``aside``, step aside as soon as no row before them stays.
    """
    left = set(reading.ids).difference(settled) if settled is not None else set[int]()
    end = len(reading.ids)
    if left:
        while end and reading.ids[end - 1] in left:
            end -= 1
        while end < len(reading.ids) and (reading.ids[end] in reading.parked or reading.ids[end] in aside):
            end += 1
    here, done = reading.position, reading.complete and end == len(reading.ids)
    if not end and not (done and here.batch is not None):
        return None
    stepping = [each for each in reading.ids[:end] if each in left] if left else []
    high = max([here.high, *reading.ids[:end][-1:]])
    if done:
        return Move(Position(bucket=here.bucket, passed=reading.upto, high=high, turn=here.turn), stepping)
    batch = replace(
        here,
        batch=reading.upto,
        place=reading.ids[end - 1],
        floor=reading.floor,
        ceiling=reading.ceiling,
        high=high,
    )
    return Move(batch, stepping)


@dataclass(frozen=True, slots=True, kw_only=True)
class Portions:
    """How many of the log's rows a claim asks for.

    A bucket that begins a batch is read as far as there is room, and not only its share: read whole, it need not be measured or
    read again. So a claim of many buckets comes to the first of them only.
    """

    share: int
    """Of each bucket in the middle of a batch, and of each bucket's side table."""
    most: int
    """Of each bucket that begins a batch, and one more, which tells of others behind."""
    room: int | None
    """Of all buckets that begin a batch, and one more. As many as are wanted, and a few, because large buckets bring one too many
    each. None: no limit, so that the claim comes to all of them."""

    @classmethod
    def filling(cls, limit: int, *, buckets: int) -> Self:
        """For a claim of so many buckets, none of which is in the middle of a batch."""
        share = max(1, limit // max(1, buckets))
        return cls(share=share, most=max(share, limit // PARTS), room=max(1, limit) + PARTS)

    def beside(self, under_way: int) -> Self:
        """These portions if so many of the buckets are in the middle of a batch."""
        if self.room is None:
            return self
        return replace(self, room=max(1, self.room - PARTS - self.share * under_way) + PARTS)

    @classmethod
    def even(cls, limit: int, *, buckets: int) -> Self:
        """Equal portions for all buckets, for logs that may have to rest: one that rests would take the room of others."""
        share = max(1, limit // max(1, buckets))
        return cls(share=share, most=share, room=None)

    def sort_out(self, found: Mapping[int, int]) -> SortedOut:
        """Args:
        found: by bucket that begins a batch, how many rows were found; those with rows in the order in which they were read.
        """
        large = {bucket: self.most for bucket, number in found.items() if number > self.most}
        if self.room is None or sum(found.values()) <= self.room:
            return SortedOut(frozenset(), large)
        unread = {bucket for bucket, number in found.items() if not number}
        *others, last = (bucket for bucket, number in found.items() if number)
        if last not in large:
            # It was cut off. A few rows are not worth its measurement: it is the first in the next claim.
            if others and found[last] <= self.most // 2:
                unread.add(last)
            else:
                large[last] = found[last]
        return SortedOut(frozenset(unread), large)


class SortedOut(NamedTuple):
    """What to do with buckets that begin a batch."""

    unread: frozenset[int]
    """The claim has not come to these: nothing is known of them."""
    large: Mapping[int, int]
    """Buckets with more rows than were found, which are to be measured; with how many the claim may give."""


RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class Given(Generic[RowT]):
    """What a claim returns of the rows that were found."""

    rows: list[RowT]
    readings: dict[int, Reading]
    """The readings whose rows may be among them, by bucket; the logs of other buckets are not read on for now."""
    waiting: set[int]
    """Buckets that may have more."""


def give(
    side: Sequence[RowT],
    logged: Sequence[RowT],
    readings: Mapping[int, Reading],
    *,
    unread: Collection[int],
    share: int,
    limit: int,
    id_of: Callable[[RowT], int],
    bucket_of: Callable[[RowT], int],
) -> Given[RowT]:
    """Selects what a claim returns, ordered by id, from rows of the side table and from the log's rows that are not parked.

    Rows that stepped aside go first: while the side table may hold more of a bucket, the bucket's log is left alone.

    Args:
        unread: buckets to whose log the claim has not come.
        share: how many rows of the side table were requested per bucket.
        limit: the most rows to return.
    """
    crowded = (
        {bucket for bucket, number in Counter(map(bucket_of, side)).items() if number >= share} if side else set[int]()
    )
    kept = (
        {bucket: reading for bucket, reading in readings.items() if bucket not in crowded}
        if crowded
        else dict(readings)
    )
    going = [row for row in logged if bucket_of(row) in kept] if crowded else logged
    rows = sorted([*side, *going], key=id_of)
    left = set(map(bucket_of, rows[limit:])) if len(rows) > limit else set[int]()
    going_on = {bucket for bucket, reading in kept.items() if not _is_exhausted(reading)}
    return Given(rows[:limit], kept, crowded | left | going_on | set(unread))


def _is_exhausted(reading: Reading) -> bool:
    """Whether nothing is left; parked rows move to the side table."""
    return reading.complete and not reading.followed and not reading.parked


def has_gone_back(passed: str, now: str) -> bool:
    """Whether the server's transaction counter is behind the first snapshot: then its numbers mean nothing."""
    return highest_of(now) < highest_of(passed)


def highest_of(snapshot: str) -> int:
    """The snapshot's upper bound: no transaction with this or a higher number had ended."""
    return int(snapshot.split(":")[1])
