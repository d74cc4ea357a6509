"""The id up to which each bucket is done, so that a look need not walk over delivered rows.

While somebody keeps an old snapshot open, the database can remove no index entry of a delivered row, and each look at a
bucket walks over all of them. A look that begins behind the bucket's *bound* does not. A bound is a hint of one worker: it is
kept in memory, used only while the walk is slow, and forgotten when a connection is lost.

Ids do not follow the order of commits, so a row with a lower id may appear at any time. A bound is safe all the same:

1. The last id that anybody has drawn is *proposed*.
2. After that, the writers are listed: the transactions that have drawn an id of this box and have not ended. Ids are drawn in
   ascending order, so whoever drew a lower one is on the list or has ended.
3. Once everybody on the list has ended, a look at the rows up to the proposal finds the first one that is pending. Each
   bucket's bound moves up to the proposal, or stops before that row.

A store may let bounds pass rows that it finds in another way, as those of which an index by time says when they are due.

Where a look also sees rows that are not committed yet, the second step lists only those who have an id and no row: a row that
somebody has yet to commit stops the bound in the third.

Rows that come back below a bound by other ways (an operator's SQL, a backfill with ids of its own) are found by looks from
the start, at a few buckets at a time. Whoever knows of such rows makes the worker forget its bounds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

NO_END = 2**63 - 1
"""Greater than every id."""
RENAMED = ""
"""Stands for transactions that may have had another name before. Every proposal waits for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often bounds move and are checked."""

    every: float = 0.25
    """Seconds between two moves while items are delivered."""
    items: int = 10_000
    """Claimed between two looks that find out whether the walk is slow."""
    rarely: float = 600.0
    """Seconds between two such looks while others deliver the items."""
    again: float = 10.0
    """Seconds between two such looks while looks at the box take long."""
    slow: float = 0.02
    """Bounds are used once the walk over all buckets takes this many seconds."""
    parts: int = 16
    """The buckets are divided into this many parts; a look from the start covers one of them."""
    shortest: float = 1.0
    """Seconds between two looks from the start."""
    share: float = 50.0
    """The pause after a look from the start is this many times its duration."""


PACE = Pace()


class Range(NamedTuple):
    """Ids of one bucket."""

    after: int
    up_to: int


class Seen(NamedTuple):
    """The result of a look."""

    first: Mapping[int, int]
    """By bucket, the first id in its range that no bound may pass; buckets without one are left out."""
    seconds: float
    """How long the store took."""


class Sight(Protocol):
    """What the store shows of one box. May raise ``StoreUnavailable``."""

    def last_drawn(self) -> int:
        """The last id that anybody has drawn; 0 if no bound is to be used, because that cannot be told, or for another reason."""

    def writers(self) -> Collection[str]:
        """The transactions that have drawn an id of this box and have not ended, as far as a look does not see their rows.

        Each is listed under a name that is not used again, or as ``RENAMED``.
        """

    def look(self, ranges: Mapping[int, Range]) -> Seen:
        """Looks at ranges of ids, by bucket. It sees what was committed by writers that a list made before no longer names."""


class _Proposal(NamedTuple):
    id: int
    writers: frozenset[str]


class Bounds:
    """The bounds of one box in one worker. One thread advances them; all threads read them."""

    def __init__(self, buckets: Sequence[int], *, monotonic: Callable[[], float], pace: Pace = PACE) -> None:
        self._buckets = buckets
        self._monotonic = monotonic
        self._pace = pace
        self._lock = threading.Lock()
        self._bounds: Mapping[int, int] = {}
        """Replaced, never changed."""
        self._forgotten = 0
        """How often ``forget`` was called."""
        self._proposal: _Proposal | None = None
        self._claimed = pace.items - 1
        """Items since the last move; while no bounds are used, since the walk was timed. The first item triggers a timing."""
        self._slow = False
        """Whether the walk is slow."""
        self._part = 0
        self._walked = 0.0
        """Seconds that looks from the start have taken in this round over all parts."""
        self._look_next = monotonic() + pace.rarely
        """When to look from the start again."""
        self._timed = monotonic() - pace.again
        """When the walk was timed."""

    # ── what claims and looks do ─────────────────────────────────────────────────────────────────────

    def after(self, bucket: int, position: int | None = None) -> int:
        """The id after which to read a bucket.

        Args:
            position: where the reader would begin without the bound; None: at the start.
        """
        return max(self._bounds.get(bucket, 0), position or 0)

    @property
    def used(self) -> bool:
        """Whether there are any for now."""
        return bool(self._bounds)

    def in_use(self) -> Mapping[int, int]:
        """For all buckets the id after which to read; empty while no bound is used."""
        return {bucket: self.after(bucket) for bucket in self._buckets} if self.used else {}

    def claimed(self, count: int) -> None:
        """This many items have been claimed; nearly all of them are delivered now."""
        with self._lock:
            self._claimed += count

    def looked(self, seconds: float) -> None:
        """A look from the start at the buckets has taken this long. If that is slow, the walk is timed soon: who claims nothing
        would not find out otherwise."""
        if seconds >= self._pace.slow and not self._slow:
            self._look_next = min(self._look_next, self._timed + self._pace.again)

    def put_off(self) -> None:
        """The box cannot be looked at now: the next move is due after the usual number of items, or after a long while."""
        self._count_anew()
        self._timed = self._monotonic()
        self._look_next = self._timed + self._pace.rarely

    def forget(self) -> None:
        """Makes every reader begin at the start again; also discards what a look under way will find."""
        with self._lock:
            self._forgotten += 1
            self._bounds = {}
            self._proposal = None
            if self._slow:
                self._claimed += 1

    # ── what moves them ──────────────────────────────────────────────────────────────────────────────

    @property
    def due(self) -> bool:
        """Whether it is time to advance."""
        if self._monotonic() >= self._look_next:
            return True
        if not self._slow:
            return self._claimed >= self._pace.items
        return self._claimed > 0 or self._proposal is not None

    def advance(self, sight: Sight) -> Collection[int]:
        """Moves the bounds. Returns buckets in which a row has come back below the bound."""
        if not self._slow:
            self._time(sight)
            return ()
        self._move(sight)
        return self._look_from_start(sight) if self._monotonic() >= self._look_next else ()

    def _time(self, sight: Sight) -> None:
        """Finds out whether the walk has become slow."""
        self._count_anew()
        self._timed = self._monotonic()
        buckets = self._next_part()
        seconds = sight.look(dict.fromkeys(buckets, Range(0, NO_END))).seconds
        self._slow = seconds * len(self._buckets) / len(buckets) >= self._pace.slow
        if self._slow:
            self.claimed(1)  # the first move follows even if no further item does
        self._part, self._walked = 0, 0.0
        self._look_next = self._monotonic() + (self._pace.shortest if self._slow else self._pace.rarely)

    def _move(self, sight: Sight) -> None:
        forgotten = self._count_anew()
        # Asked before the writers are listed: whoever draws a lower id has drawn it by now.
        last = sight.last_drawn()
        proposal = self._proposal
        if last < max(0 if proposal is None else proposal.id, *self._bounds.values(), 0):
            self.forget()  # somebody has set the ids back
            return
        if proposal is None and last <= min(map(self.after, self._buckets)):
            return
        writers = frozenset(sight.writers())
        if proposal is not None:
            if (proposal.writers | {RENAMED}) & writers:
                return
            ranges = {bucket: Range(self.after(bucket), proposal.id) for bucket in self._buckets}
            ranges = {bucket: each for bucket, each in ranges.items() if each.after < each.up_to}
            first = sight.look(ranges).first if ranges else {}
            self._set({bucket: first.get(bucket, each.up_to + 1) - 1 for bucket, each in ranges.items()}, forgotten)
        with self._lock:
            if forgotten == self._forgotten:
                reached = proposal is not None and proposal.id == last
                self._proposal = None if reached else _Proposal(last, writers)

    def _look_from_start(self, sight: Sight) -> Collection[int]:
        """Looks at some buckets, up to their bounds."""
        forgotten, bounds = self._forgotten, self._bounds
        ranges = {bucket: Range(0, bounds[bucket]) for bucket in self._next_part() if bounds.get(bucket)}
        seen = sight.look(ranges) if ranges else Seen({}, 0.0)
        self._set({bucket: first - 1 for bucket, first in seen.first.items()}, forgotten)
        self._walked += seen.seconds
        self._look_next = self._monotonic() + max(self._pace.shortest, self._pace.share * seen.seconds)
        if self._part == 0:
            if self._walked < self._pace.slow / 2:
                self._slow = False
                self.forget()
            self._walked = 0.0
        return seen.first.keys()

    def _count_anew(self) -> int:
        with self._lock:
            self._claimed = 0
            return self._forgotten

    def _set(self, bounds: Mapping[int, int], forgotten: int) -> None:
        with self._lock:
            if forgotten == self._forgotten:
                self._bounds = {**self._bounds, **bounds}

    def _next_part(self) -> Sequence[int]:
        parts = min(self._pace.parts, len(self._buckets))
        part = self._buckets[self._part :: parts]
        self._part = (self._part + 1) % parts
        return part
