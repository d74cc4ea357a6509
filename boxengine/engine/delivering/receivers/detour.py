"""Leads round items that wait for a receiver, so that they do not stand in front of those for other transports.

While a circuit is open, the items for its transport stay pending. Each batch of a bucket begins with the first pending items,
so some dozens of them would fill every batch. Reading goes on behind them instead: this process remembers how far it has passed
them. That is a hint only. An item from behind goes out only after the store was asked whether an earlier one of its key waits
in front.

Rows that come due in front meanwhile, such as retries, are found when reading begins at the start again: now and then, and once
the receiver is back. A batch that probes begins with the first item for the transport in question, or at the start if none is
known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item
from boxengine.domain.item_id import ItemId
from boxengine.engine.delivering.receivers.circuits import FREE, Entry
from boxengine.engine.delivering.work import NO_CAUTION, Errand, Report
from boxengine.ports import Clock

ANEW = 30.0
"""Seconds after which reading begins at the start again."""
ANEW_PER_ITEM = 0.002
"""Seconds more for each item that was passed. To read it takes a hundredth of that."""

_NOTHING: Mapping[int, ItemId] = {}


class Course(NamedTuple):
    """What one batch is told before it begins: where to read, and round what."""

    errand: Errand
    entry: Entry
    positions: Mapping[int, ItemId | None]
    """By bucket, the id after which to read."""
    behind: Mapping[int, ItemId] = _NOTHING
    """The positions that lie behind waiting items, and so further on than the errand says."""
    passing: bool = False
    """Whether the batches after it may read on behind items that wait."""


class Passed(NamedTuple):
    """An item behind which reading goes on."""

    item: Item
    waits_for: Collection[str]
    """Transports that are not called now; none where it has an outcome, or follows another."""


@dataclass(slots=True)
class _Place:
    """How far reading has come in one bucket."""

    upto: ItemId | None
    since: float
    items: int = 0
    before: dict[str, ItemId | None] = field(default_factory=dict)
    """By transport, the id before the first item that waits for it."""

    def lasts(self, now: float) -> bool:
        return now < self.since + ANEW + ANEW_PER_ITEM * self.items


class Detour:
    """The ways round waiting items of one box. Shared by threads; remembers nothing while all circuits are closed."""

    def __init__(self, box: Box, transports: Iterable[str], *, clock: Clock) -> None:
        self._transports = frozenset(transports)
        # Under strict order by bucket, everything behind a waiting item has to wait with it.
        self._allowed = box.strict_order is not StrictOrder.BUCKET
        self._clock = clock
        self._lock = threading.Lock()
        self._away = frozenset[str]()
        self._places: dict[int, _Place] = {}

    def course(self, errand: Errand, entry: Entry) -> Course:
        """How a batch is to read its buckets."""
        if entry is not FREE or self._away:
            away = entry.probes.union(entry.refused)
            if away != self._away:
                self._begin_anew(away)
            if away and errand.caution is NO_CAUTION and self._allowed:
                return self._round(errand, entry)
        return Course(errand, entry, errand.positions)

    def went(self, course: Course, passed: Sequence[Passed]) -> bool:
        """The next batches of these buckets read on behind these items; returns whether that is further on than before.

        Args:
            passed: of each bucket those that come first, in the order of their ids.
        """
        now, further = self._clock.monotonic(), False
        with self._lock:
            for bucket in {item.bucket for item, _ in passed} - course.behind.keys():
                self._places[bucket] = _Place(course.errand.positions[bucket], now)
            for item, waits_for in passed:
                place = self._places.setdefault(item.bucket, _Place(course.behind.get(item.bucket), now))
                for transport in waits_for:
                    place.before.setdefault(transport, place.upto)
                if place.upto is None or item.id > place.upto:
                    place.upto, place.items, further = item.id, place.items + 1, True
        return further

    def leads_past(self, entry: Entry, unreachable: Collection[str]) -> bool:
        """Whether the batch after one that probed can go round the items for these transports."""
        known = entry.probes.union(entry.refused)
        return self._allowed and known.issuperset(unreachable) and known < self._transports

    def _round(self, errand: Errand, entry: Entry) -> Course:
        now = self._clock.monotonic()
        with self._lock:
            known = {bucket: self._places[bucket] for bucket in errand.positions if bucket in self._places}
            if entry.probes:
                begin = {bucket: _before(place, entry.probes) for bucket, place in known.items()}
            else:
                begin = {bucket: place.upto for bucket, place in known.items() if place.lasts(now)}
        behind = {bucket: upto for bucket, upto in begin.items() if upto is not None}
        return Course(errand, entry, {**errand.positions, **behind}, behind, passing=not entry.probes)

    def _begin_anew(self, away: frozenset[str]) -> None:
        with self._lock:
            self._away = away
            self._places.clear()


def nothing_behind(report: Report, course: Course) -> Report:
    """The report of a batch that found nothing behind the items that wait.

    Their buckets are not empty. If their leases were freed, the next look would find them, and have them read, again and again.
    """
    waiting = report.exhausted & course.behind.keys()
    positions = {bucket: course.errand.positions[bucket] for bucket in waiting}
    return replace(report, exhausted=report.exhausted - waiting, positions=positions, progressed=not waiting)


def in_front(items: Sequence[Item], judge: Callable[[Item], Passed | None]) -> list[Passed]:
    """Of each bucket the first items, as far as all of them may be passed.

    Args:
        judge: returns None for an item that may not.
    """
    front, ended = list[Passed](), set[int]()
    for item in items:
        passed = None if item.bucket in ended else judge(item)
        if passed is None:
            ended.add(item.bucket)
        else:
            front.append(passed)
    return front


def _before(place: _Place, transports: Iterable[str]) -> ItemId | None:
    """Where a batch begins that looks for items of these transports: before the first of them; None: at the start, where some
    may have come due again."""
    found: list[ItemId] = [place.before.get(each) for each in transports]
    return None if None in found else min(found)
