"""How far a log's bucket has been processed, what a claim returns from it, and how far a settlement advances it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar


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
    floor: int | None = None
    ceiling: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What a settlement does to one bucket of the log."""

    position: Position
    aside: Sequence[int]
    """Rows passed without an outcome: they are copied to the side table as pending and untried."""


def move(reading: Reading, settled: Collection[int]) -> Move | None:
    """The bucket's move once these rows have their outcomes; None if it does not move.

    Rows without an outcome step aside if later rows have one; otherwise they stay in the log. Parked rows step aside as soon
    as no row before them stays.
    """
    end = len(reading.ids)
    while end and reading.ids[end - 1] not in settled:
        end -= 1
    while end < len(reading.ids) and reading.ids[end] in reading.parked:
        end += 1
    here, done = reading.position, reading.complete and end == len(reading.ids)
    if not end and not (done and here.batch is not None):
        return None
    aside = [each for each in reading.ids[:end] if each not in settled]
    high = max([here.high, *reading.ids[:end][-1:]])
    if done:
        return Move(Position(bucket=here.bucket, passed=reading.upto, high=high, turn=here.turn), aside)
    batch = replace(
        here,
        batch=reading.upto,
        place=reading.ids[end - 1],
        floor=reading.floor,
        ceiling=reading.ceiling,
        high=high,
    )
    return Move(batch, aside)


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
    share: int,
    limit: int,
    id_of: Callable[[RowT], int],
    bucket_of: Callable[[RowT], int],
) -> Given[RowT]:
    """Selects what a claim returns, ordered by id, from rows of the side table and from the log's rows that are not parked.

    Rows that stepped aside go first: while the side table may hold more of a bucket, the bucket's log is left alone.

    Args:
        share: how many rows of the side table were requested per bucket.
        limit: the most rows to return.
    """
    crowded = {bucket for bucket, number in Counter(map(bucket_of, side)).items() if number >= share}
    kept = {bucket: reading for bucket, reading in readings.items() if bucket not in crowded}
    going = [row for row in logged if bucket_of(row) in kept] if crowded else logged
    rows = sorted([*side, *going], key=id_of)
    left = set(map(bucket_of, rows[limit:]))
    going_on = {bucket for bucket, reading in kept.items() if not _is_exhausted(reading)}
    return Given(rows[:limit], kept, crowded | left | going_on)


def _is_exhausted(reading: Reading) -> bool:
    """Whether nothing is left. An older batch may have a later one after it, and parked rows move to the side table."""
    return reading.complete and reading.position.batch is None and not reading.parked


def has_gone_back(passed: str, now: str) -> bool:
    """Whether the server's transaction counter is behind the first snapshot: then its numbers mean nothing."""
    return highest_of(now) < highest_of(passed)


def highest_of(snapshot: str) -> int:
    """The snapshot's upper bound: no transaction with this or a higher number had ended."""
    return int(snapshot.split(":")[1])
