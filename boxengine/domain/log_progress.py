"""How far a bucket of a log has come, what a claim gives out of it, and how far a settlement takes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What has been passed of one bucket: all rows visible in ``passed``, and those of the batch up to ``place``."""

    bucket: int
    passed: str
    """A snapshot as PostgreSQL writes it."""
    batch: str | None = None
    """The later snapshot of the batch under way; None between two batches."""
    place: int = 0
    """The last id passed of that batch."""
    floor: int | None = None
    """Of a batch that is read by id: below it stand only rows of transactions that ran when ``passed`` was taken."""
    ceiling: int | None = None
    """Of a batch that is read by id: its highest."""
    high: int = 0
    """The highest id ever passed: what there is to go by where transactions' numbers have lost their meaning."""
    turn: int = 0
    """Rises with every move, so that nobody moves on from what is no longer so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a claim has read of one bucket's log."""

    position: Position
    upto: str
    """The snapshot that ends the batch."""
    ids: Sequence[int] = ()
    """In order; after ``place``, none left out before the last."""
    parked: frozenset[int] = frozenset()
    """Those that must wait in the side table for others of their key."""
    complete: bool = False
    """Whether nothing of the batch stands behind them."""
    floor: int | None = None
    ceiling: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """What a settlement does to one bucket of the log."""

    position: Position
    aside: Sequence[int]
    """Rows that are passed without an outcome: they are copied to the side table, pending and untried."""


def move(reading: Reading, settled: Collection[int]) -> Move | None:
    """Where the bucket stands after these rows have their outcomes; None where it stays.

    Rows without an outcome step aside where others behind them have one; else they stay in the log. Parked ones step aside
    as soon as nothing before them stays.
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
    """What a claim gives of the rows that were found."""

    rows: list[RowT]
    readings: dict[int, Reading]
    """By bucket, those whose rows are among them; the log of the others rests."""
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
    """Of rows of the side table, and of the log without those that are parked, what a claim gives, by id.

    What stepped aside goes first: as long as there may be more of it, its bucket's log rests.

    Args:
        share: the rows of the side table that were asked for, of each bucket.
        limit: of all rows.
    """
    crowded = {bucket for bucket, number in Counter(map(bucket_of, side)).items() if number >= share}
    kept = {bucket: reading for bucket, reading in readings.items() if bucket not in crowded}
    going = [row for row in logged if bucket_of(row) in kept] if crowded else logged
    rows = sorted([*side, *going], key=id_of)
    left = set(map(bucket_of, rows[limit:]))
    going_on = {bucket for bucket, reading in kept.items() if not _is_exhausted(reading)}
    return Given(rows[:limit], kept, crowded | left | going_on)


def _is_exhausted(reading: Reading) -> bool:
    """Whether nothing is left: an older batch may have a later one behind it, and parked rows are in the side table then."""
    return reading.complete and reading.position.batch is None and not reading.parked


def has_gone_back(passed: str, now: str) -> bool:
    """Whether the server counts transactions from before the moment of the first snapshot: then its numbers mean nothing."""
    return highest_of(now) < highest_of(passed)


def highest_of(snapshot: str) -> int:
    """The first number of a transaction that had not begun to end."""
    return int(snapshot.split(":")[1])
