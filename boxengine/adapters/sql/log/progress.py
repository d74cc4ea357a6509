"""How far a bucket of a log has come, and how far a settlement takes it. Knows no SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace


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
    end = max((place for place, each in enumerate(reading.ids) if each in settled), default=-1) + 1
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


def has_gone_back(passed: str, now: str) -> bool:
    """Whether the server counts transactions from before the moment of the first snapshot: then its numbers mean nothing."""
    return highest_of(now) < highest_of(passed)


def highest_of(snapshot: str) -> int:
    """The first number of a transaction that had not begun to end."""
    return int(snapshot.split(":")[1])
