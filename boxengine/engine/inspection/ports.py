"""Questions about the rows of a box that a person waits for, so each is answered in milliseconds on a table of millions.

Where no index leads to the answer, a question looks at so many rows and says how far it came; whoever asked may go on
from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from boxengine.domain.box import Box
from boxengine.ports import Count, ItemFilter, ItemRow


class Towards(StrEnum):
    """Which way a page lies from the id that it starts at."""

    OLDER = "older"
    NEWER = "newer"


class Found(NamedTuple):
    """What one look has found."""

    rows: Sequence[ItemRow]
    """The highest id first, without payloads, at most as many as were asked for."""
    searched_to: int | None
    """The id up to which rows were looked at and after which a next look goes on; None: there are no more rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """How a box's table lies on disk, as the database's statistics know it; None where they do not."""

    bytes: int | None
    """With its indexes."""
    dead_rows: int | None
    live_rows: int | None
    vacuumed_at: datetime | None
    """The last time, by whomever."""


class Inspector(Protocol):
    """Every method raises ``StoreUnavailable`` where the database does not answer, or not in time."""

    def find(self, box: Box, which: ItemFilter, *, start: int | None, towards: Towards, limit: int) -> Found:
        """The rows that are meant on one side of ``start``, itself not among them, the nearest of them; None: from the end
        that lies opposite of ``towards``.

        One look: it may come back with fewer rows than there are, and then says how far it searched.
        """

    def count(self, box: Box, which: ItemFilter, *, limit: int) -> Count:
        """How many rows are meant, as far as one look tells; at most ``limit`` are counted."""

    def troubled(self, box: Box, *, limit: int) -> list[ItemRow]:
        """Rows whose attempts failed: those that failed for good, the newest first, then those that will be tried again."""

    def holding_back(self, box: Box, row: ItemRow) -> ItemRow | None:
        """The first row before this one that failed and keeps it waiting under the box's strict order; None: none does."""

    def ahead(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """Pending rows of the same bucket with a smaller id."""

    def followers(self, box: Box, row: ItemRow, *, limit: int) -> Count:
        """Pending rows that strict order keeps behind this one; of no more than ``limit`` rows of its bucket it is asked whether
        they do."""

    def neighbours(self, box: Box, row: ItemRow, *, limit: int) -> tuple[list[ItemRow], list[ItemRow]]:
        """Rows of the same key close to this one, before and after, each list the highest id first."""

    def table(self, box: Box) -> TableState:
        """What the database's statistics say of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something that a person did to a box or its items."""

    at: datetime
    who: str
    action: str
    box: str
    what: str
    """Which items, in words; empty where the whole box is meant."""
    outcome: str


class Trail(Protocol):
    """What people did, the latest so many deeds of it. Raises ``QueueUnavailable`` where the server does not answer."""

    def add(self, deed: Deed) -> None:
        """Remembers it."""

    def latest(self, limit: int) -> list[Deed]:
        """The latest first."""


LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds: the upper bounds of the classes in which waits are counted; one more class holds what is longer."""


@dataclass(slots=True)
class Happened:
    """What happened to a box in some span of time."""

    delivered: int = 0
    failed: int = 0
    """Attempts."""
    waits: dict[int, int] = field(default_factory=dict)
    """By class of ``LATENCIES``: how many of the deliveries that were looked at took so long from their creation."""

    def wait(self, share: float) -> float | None:
        """Seconds within which this share of the deliveries came, as the upper bound of a class; None: none was looked at."""
        total, seen = sum(self.waits.values()), 0
        for position in sorted(self.waits):
            seen += self.waits[position]
            if seen >= share * total:
                return LATENCIES[min(position, len(LATENCIES) - 1)]
        return None


@dataclass(frozen=True, slots=True)
class Slot:
    """One bar of a chart."""

    at: datetime
    """Its beginning."""
    happened: Happened
    oldest_wait: float | None
    """Seconds for which the oldest pending item had waited when somebody last looked; None: nobody did."""


class Span(StrEnum):
    """How far back a history goes."""

    HOUR = "hour"
    DAY = "day"

    @property
    def slots(self) -> int:
        return 60 if self is Span.HOUR else 144

    @property
    def step(self) -> timedelta:
        return timedelta(minutes=1 if self is Span.HOUR else 10)


class History(Protocol):
    """What happened lately, for charts: bounded, and nothing depends on it.

    Raises ``QueueUnavailable`` where the server does not answer.
    """

    def add(self, happened: Mapping[str, Happened], *, now: datetime) -> None:
        """By box name: adds to the slots of this moment."""

    def measured(self, oldest_waits: Mapping[str, float], *, now: datetime) -> None:
        """By box name: seconds for which the oldest pending item has waited."""

    def read(self, box: str, span: Span, *, now: datetime) -> list[Slot]:
        """The slots of the span, the oldest first; the last is still being filled."""

    def lately(self, boxes: Sequence[str], *, now: datetime) -> Mapping[str, Happened]:
        """By box name: what happened in this minute and the last."""
