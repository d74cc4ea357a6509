"""Judges a run by what it wrote down: when transactions committed, when their items arrived, and how much room was taken."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Sample(NamedTuple):
    """How much room was taken at one moment."""

    at: float
    """Monotonic seconds."""
    total: int
    """Bytes of the whole database; WAL is not part of one."""
    positions: int
    """Bytes of them that the positions take."""


class Waits:
    """From the beginning of each commit to the transport, matched while both files grow."""

    def __init__(self) -> None:
        self._committed: dict[int, float] = {}
        self._arrived: dict[int, float] = {}
        self.measured: list[tuple[float, float]] = []
        """When the commit began, and the seconds from then to the transport."""
        self.written = 0
        """Items committed."""
        self.received = 0
        """Items that reached the transport."""

    def committed(self, number: int, began: float, items: int) -> None:
        """A transaction was; its last item bears its number."""
        self.written += items
        if number in self._arrived:
            self._match(began, self._arrived.pop(number))
        else:
            self._committed[number] = began

    def arrived(self, at: float, items: int, numbers: Sequence[int]) -> None:
        """A batch did; these are the numbers in it."""
        self.received += items
        for number in numbers:
            if number in self._committed:
                self._match(self._committed.pop(number), at)
            else:
                self._arrived[number] = at

    def unmatched(self) -> int:
        """Transactions whose last item has not arrived, and such items whose transaction is not known."""
        return len(self._committed) + len(self._arrived)

    def between(self, since: float, until: float) -> list[float]:
        """Milliseconds that items waited which were committed then."""
        return [1000 * wait for began, wait in self.measured if since <= began < until]

    def _match(self, began: float, at: float) -> None:
        self.measured.append((began, at - began))


@dataclass(frozen=True, slots=True)
class Phase:
    """A time of the run."""

    since: float
    until: float

    def of(self, samples: Sequence[Sample]) -> list[Sample]:
        return [each for each in samples if self.since <= each.at < self.until]


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What came of it."""

    steady: Sample
    """The most room that was taken without an open transaction, once retention kept pace."""
    most: Sample
    """The most that was taken with some always open."""
    p50: float
    """Milliseconds from the beginning of a commit to the transport, while transactions were open."""
    p99: float
    steady_p99: float
    """While none was open."""
    written: int
    received: int
    rate: float
    """Items committed per second while transactions were open."""
    steady_rate: float
    """The same while none was."""
    unmatched: int
    problems: list[str] = field(default_factory=list)

    @property
    def growth(self) -> float:
        return self.most.total / self.steady.total


MOST_GROWTH = 1.2
MOST_WAIT = 25.0
"""Milliseconds, of the p99."""
LEAST_RATE = 0.95
"""Of the rate that was asked for."""


def judge(
    samples: Sequence[Sample],
    waits: Waits,
    *,
    steady: Phase,
    kept_open: Phase,
    rate: float,
    problems: Sequence[str] = (),
) -> Verdict:
    """Compares the two phases.

    Args:
        rate: items per second that were asked for.
        problems: what went wrong on the way.

    Raises:
        ValueError: a phase was so short that nothing was measured in it.
    """
    quiet, busy = (waits.between(phase.since, phase.until) for phase in (steady, kept_open))
    sizes = [phase.of(samples) for phase in (steady, kept_open)]
    if min(len(quiet), len(busy)) < 2 or not all(sizes):
        raise ValueError("too short: nothing was measured in one of the phases")
    most_steady, most = (max(each, key=lambda sample: sample.total) for each in sizes)
    cuts = statistics.quantiles(busy, n=100)
    items = waits.written / max(1, len(waits.measured))
    verdict = Verdict(
        steady=most_steady,
        most=most,
        p50=cuts[49],
        p99=cuts[98],
        steady_p99=statistics.quantiles(quiet, n=100)[98],
        written=waits.written,
        received=waits.received,
        rate=len(busy) * items / (kept_open.until - kept_open.since),
        steady_rate=len(quiet) * items / (steady.until - steady.since),
        unmatched=waits.unmatched(),
        problems=list(problems),
    )
    verdict.problems += _broken(verdict, rate)
    return verdict


def _broken(verdict: Verdict, rate: float) -> list[str]:
    found = []
    if verdict.received < verdict.written:
        found.append(f"{verdict.written - verdict.received:,} items were never received")
    if verdict.unmatched:
        found.append(f"{verdict.unmatched:,} transactions whose last item never came, or that were never committed")
    if verdict.growth > MOST_GROWTH:
        found.append(f"it grew to {verdict.growth:.2f} of the steady state; at most {MOST_GROWTH:g} is promised")
    if verdict.p99 > MOST_WAIT:
        found.append(f"p99 of a fresh item was {verdict.p99:.1f} ms; at most {MOST_WAIT:g} ms is promised")
    lowest = min(verdict.rate, verdict.steady_rate)
    if lowest < LEAST_RATE * rate:
        found.append(f"only {lowest:,.0f} items/s were written, so nothing is shown about {rate:,.0f}")
    return found
