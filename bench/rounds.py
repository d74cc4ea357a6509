"""Alternating rounds, and statistics of their figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Spread = tuple[float, float]
"""Lowest and highest."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """boxengine's figures compared with the fastest floor's."""

    ratio: float
    """Median of boxengine's rounds over the median of the floor's; both are rates, so more is better."""
    spread: Spread
    """Lowest and highest ratio of one of boxengine's rounds to the floor's round next to it."""
    ours: float
    """Median."""
    floor: float
    """Median."""
    floor_name: str
    """Which of the floor programs it was."""


def alternate(programs: Mapping[str, Callable[[], float]], *, rounds: int) -> dict[str, list[float]]:
    """Runs every program once per round, each round in another order, and returns its figures by name.

    So a machine's fast and slow phases affect all programs alike. Every second round runs backwards, so that no program always
    comes after the same one: two programs that were one and the same differed by an eighth when one of them always did.
    """
    names = list(programs)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number // 2 % len(names)
        order = names[turn:] + names[:turn]
        for name in reversed(order) if number % 2 else order:
            figures[name].append(programs[name]())
    return figures


def compare(figures: Mapping[str, Sequence[float]], *, ours: str, without: str | None = None) -> Comparison:
    """The figures of ``alternate``: those named ``ours`` against the floor with the highest median.

    Args:
        without: a program that does not count as a floor.

    Raises:
        ValueError: there is no floor, or a program has another number of rounds.
    """
    floors = {name: rates for name, rates in figures.items() if name not in (ours, without)}
    if not floors:
        raise ValueError("there is no floor to compare with")
    floor_name = max(floors, key=lambda name: statistics.median(floors[name]))
    mine, floor = figures[ours], floors[floor_name]
    ratios = [rate / other for rate, other in zip(mine, floor, strict=True)]
    middle, floor_middle = statistics.median(mine), statistics.median(floor)
    return Comparison(
        ratio=middle / floor_middle,
        spread=(min(ratios), max(ratios)),
        ours=middle,
        floor=floor_middle,
        floor_name=floor_name,
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share (0 to 1) of all values do not exceed (nearest rank).

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("a percentile needs values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def spread_of(values: Sequence[float]) -> Spread:
    """Lowest and highest."""
    return min(values), max(values)
