"""Alternating rounds and what is made of their figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: a figure as a ratio to its floor, and the bar it must reach."""

    work: str
    bar: float
    ratio: float
    """Median of boxengine's rounds over the median of the floor's, each in items per second."""
    spread: tuple[float, float]
    """Lowest and highest ratio of a round to the floor's round beside it."""
    floor: float
    """Median items per second of the floor."""
    ours: float

    @property
    def reached(self) -> bool:
        return self.ratio >= self.bar

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "reached": self.reached}


def alternate(programs: Mapping[str, Callable[[], float]], *, rounds: int) -> dict[str, list[float]]:
    """Runs every program once per round, each time in another order; its figures by name."""
    names = list(programs)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            figures[name].append(programs[name]())
    return figures


def compare(work: str, bar: float, floors: Sequence[Sequence[float]], ours: Sequence[float]) -> Line:
    """Holds boxengine's figures against the fastest of the floors (by median)."""
    floor = max(floors, key=statistics.median)
    ratios = [mine / other for mine, other in zip(ours, floor, strict=True)]
    middle = statistics.median(floor)
    return Line(
        work=work,
        bar=bar,
        ratio=statistics.median(ours) / middle,
        spread=(min(ratios), max(ratios)),
        floor=middle,
        ours=statistics.median(ours),
    )
