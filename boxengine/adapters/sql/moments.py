"""From a moment to the ids of its time. Both rise together, but for rows that were committed side by side."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, text

_HALVING_EVERY = 3


class Place(NamedTuple):
    """Where a moment lies among the ids."""

    after: int
    """All rows up to this id are older; 0: none is."""
    before: int
    """All rows from this id on are as young, or younger."""


class _Row(NamedTuple):
    id: int
    at: datetime


def place_of(connection: Connection, table: str, moment: datetime, *, near: int) -> Place:
    """Where the moment lies, in a few probes of the primary key.

    Args:
        table: its name as it stands in ``text``.
        near: the distance of two ids that is good enough.
    """

    def ask(query: str, **values: int) -> _Row | None:
        row = connection.execute(text(f"SELECT id, created_at FROM {table} {query}"), values).one_or_none()
        return None if row is None else _Row(int(row[0]), _utc(row[1]))

    first, last = ask("ORDER BY id LIMIT 1"), ask("ORDER BY id DESC LIMIT 1")
    if first is None or last is None or moment <= first.at:
        return Place(0, 0 if first is None else first.id)
    if moment > last.at:
        return Place(last.id, last.id + 1)
    return _between(first, last, moment, near, lambda start: ask("WHERE id >= :start ORDER BY id LIMIT 1", start=start))


def _between(low: _Row, high: _Row, moment: datetime, near: int, next_row: Callable[[int], _Row | None]) -> Place:
    """``low`` is older than the moment, ``high`` is not."""
    probes = 0
    while high.id - low.id > near:
        probes += 1
        start = min(high.id - 1, max(low.id + 1, _guess(low, high, moment, near, probes)))
        found = next_row(start)
        if found is None or found.id >= high.id:
            high = _Row(start, high.at)  # no row lies between
        elif found.at >= moment:
            high = _Row(start, found.at)
        else:
            low = found
    return Place(low.id, high.id)


def _guess(low: _Row, high: _Row, moment: datetime, near: int, probes: int) -> int:
    """As if ids rose evenly: now a little before the moment, now a little behind it, so that both sides close in.

    Every third time the middle, so that it ends soon however unevenly they rise.
    """
    step = probes % _HALVING_EVERY
    if step == 0 or high.at <= low.at:
        return (low.id + high.id) // 2
    aside = near // 3 if step == 2 else -(near // 3)  # noqa: PLR2004 - the second of three
    return low.id + round((moment - low.at) / (high.at - low.at) * (high.id - low.id)) + aside


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
