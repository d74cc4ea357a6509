"""Finds the ids that belong to a moment. Ids and ``created_at`` rise together, except in concurrent transactions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, TextClause, text

from boxengine.adapters.sql.looking.windows import BEYOND, Span

_HALVING_EVERY = 3


class Place(NamedTuple):
    """The position of a moment among the ids."""

    after: int
    """All rows up to this id are older than the moment; 0: no row is."""
    before: int
    """All rows from this id on are from the moment or later."""


class _Row(NamedTuple):
    id: int
    at: datetime


class Probes:
    """The statements that look for a moment in one table."""

    def __init__(self, table: str) -> None:
        """Args:
        table: its name, escaped for ``text``.
        """
        rows = f"SELECT id, created_at FROM {table}"
        self.first = text(f"{rows} ORDER BY id LIMIT 1")
        self.last = text(f"{rows} ORDER BY id DESC LIMIT 1")
        self.next = text(f"{rows} WHERE id >= :start ORDER BY id LIMIT 1")


def span_of(
    connection: Connection, probes: Probes, since: datetime | None, before: datetime | None, *, untidy: int
) -> Span:
    """The span of ids that contains the rows of a period.

    Args:
        untidy: how far a row's id may be from others of its time.
    """

    def place(moment: datetime) -> Place:
        return place_of(connection, probes, moment, near=max(1, untidy // 10))

    low = 0 if since is None else max(0, place(since).after - untidy)
    return Span(low, BEYOND if before is None else min(BEYOND, place(before).before + untidy))


def place_of(connection: Connection, probes: Probes, moment: datetime, *, near: int) -> Place:
    """Finds the moment's position with a few probes of the primary key.

    Args:
        near: stop once ``after`` and ``before`` are this close.
    """

    def ask(probe: TextClause, **values: int) -> _Row | None:
        row = connection.execute(probe, values).one_or_none()
        return None if row is None else _Row(int(row[0]), _utc(row[1]))

    first, last = ask(probes.first), ask(probes.last)
    if first is None or last is None or moment <= first.at:
        return Place(0, 0 if first is None else first.id)
    if moment > last.at:
        return Place(last.id, last.id + 1)
    return _between(first, last, moment, near, lambda start: ask(probes.next, start=start))


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
    """Interpolates as if ids rose evenly; aims a little before and a little after the moment in turn, so both sides close in.

    Every third guess is the middle, so that the search ends soon however unevenly ids rise.
    """
    step = probes % _HALVING_EVERY
    if step == 0 or high.at <= low.at:
        return (low.id + high.id) // 2
    aside = near // 3 if step == 2 else -(near // 3)  # noqa: PLR2004 - the second of three
    return low.id + round((moment - low.at) / (high.at - low.at) * (high.id - low.id)) + aside


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
