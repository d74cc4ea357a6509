"""Recent figures of the boxes, for charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds: the upper bounds of the classes in which waits are counted. One more class holds the longer waits."""


@dataclass(slots=True)
class Calls:
    """A transport's calls in some span of time."""

    calls: int = 0
    items: int = 0
    failed: int = 0
    """Items."""
    seconds: float = 0.0
    """The duration of all calls together."""

    def __add__(self, more: Calls) -> Calls:
        return Calls(
            self.calls + more.calls, self.items + more.items, self.failed + more.failed, self.seconds + more.seconds
        )

    @property
    def per_call(self) -> float:
        """The average seconds per call."""
        return self.seconds / self.calls if self.calls else 0.0


@dataclass(slots=True)
class Happened:
    """What happened to a box in some span of time."""

    delivered: int = 0
    failed: int = 0
    """Attempts."""
    waits: dict[int, int] = field(default_factory=dict)
    """How many of the sampled deliveries took this long from their creation, by class of ``LATENCIES``."""
    transports: dict[str, Calls] = field(default_factory=dict)
    """By name."""

    def __add__(self, more: Happened) -> Happened:
        return Happened(
            self.delivered + more.delivered,
            self.failed + more.failed,
            {place: self.waits.get(place, 0) + more.waits.get(place, 0) for place in self.waits | more.waits},
            {
                name: self.transports.get(name, Calls()) + more.transports.get(name, Calls())
                for name in self.transports | more.transports
            },
        )

    def wait(self, share: float) -> float | None:
        """Seconds within which this share of the deliveries arrived, as the upper bound of a class; None: none was sampled."""
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
    """Seconds that the oldest pending item had waited when it was last measured; None: never measured."""


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
    """Recent events, for charts. Its size is bounded, and nothing depends on it.

    Raises ``QueueUnavailable`` if the server does not answer.
    """

    def add(self, happened: Mapping[str, Happened], *, now: datetime) -> None:
        """Adds to the current slots, by box name."""

    def measured(self, oldest_waits: Mapping[str, float], *, now: datetime) -> None:
        """Records, by box name, the seconds that the oldest pending item has waited."""

    def read(self, box: str, span: Span, *, now: datetime) -> list[Slot]:
        """The slots of the span, the oldest first; the last is still being filled."""

    def lately(self, boxes: Sequence[str], *, now: datetime) -> Mapping[str, Happened]:
        """What happened in this minute and the one before, by box name."""
