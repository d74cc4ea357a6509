"""What a run reports: one line for each promise, as a table on the terminal and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.rounds import Comparison, Spread


class Verdict(StrEnum):
    """How a figure compares with its bar."""

    REACHED = "reached"
    MISSED = "missed"
    NOTED = "noted"
    """There is no bar; the figure helps to interpret the others."""
    SKIPPED = "skipped"
    """Not measured here; the note says why."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure must reach."""

    limit: float
    lower_is_better: bool = False

    def reached_by(self, figure: float) -> bool:
        return figure <= self.limit if self.lower_is_better else figure >= self.limit


def at_least(limit: float) -> Bar:
    """More is better."""
    return Bar(limit)


def at_most(limit: float) -> Bar:
    """Less is better."""
    return Bar(limit, lower_is_better=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table."""

    work: str
    figure: float | None
    """None: not measured."""
    unit: str = ""
    """Printed after the figure; empty for ratios."""
    bar: Bar | None = None
    spread: Spread | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    """The medians behind the figure, by name."""
    note: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.figure is None:
            return Verdict.SKIPPED
        if self.bar is None:
            return Verdict.NOTED
        return Verdict.REACHED if self.bar.reached_by(self.figure) else Verdict.MISSED

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict.value}


def ratio_line(work: str, comparison: Comparison, bar: Bar | None, *, unit_of_rates: str = "items/s") -> Line:
    """A line for a ratio to the floor."""
    return Line(
        work=work,
        figure=comparison.ratio,
        bar=bar,
        spread=comparison.spread,
        details={
            f"boxengine {unit_of_rates}": comparison.ours,
            f"{comparison.floor_name} {unit_of_rates}": comparison.floor,
        },
    )


def skipped(work: str, why: str, bar: Bar | None = None) -> Line:
    """A line for what cannot be measured here."""
    return Line(work=work, figure=None, bar=bar, note=why)


_COLOURS = {Verdict.REACHED: "green", Verdict.MISSED: "red", Verdict.NOTED: "dim", Verdict.SKIPPED: "yellow"}


def sentence(line: Line) -> str:
    """The line as text, shown while the next work runs."""
    figure = "not measured" if line.figure is None else f"{_number(line.figure)}{line.unit}"
    return f"{line.work}: {figure} ({_bar(line) or 'no bar'}) [{_COLOURS[line.verdict]}]{line.verdict}[/]"


def table(lines: Sequence[Line]) -> Table:
    """The lines for the terminal."""
    shown = Table("work", "bar", "figure", "spread", "behind it", "verdict", title="boxengine: speed")
    for line in lines:
        verdict = line.verdict
        details = ", ".join(f"{name} {_number(value)}" for name, value in line.details.items())
        shown.add_row(
            line.work,
            _bar(line),
            "" if line.figure is None else f"{_number(line.figure)}{line.unit}",
            "" if line.spread is None else f"{_number(line.spread[0])} to {_number(line.spread[1])}",
            "; ".join(part for part in (details, line.note) if part),
            f"[{_COLOURS[verdict]}]{verdict}[/]",
        )
    return shown


def write(folder: Path, lines: Sequence[Line], *, seconds: float, quick: bool) -> Path:
    """One JSON file for the run; returns where it is."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = datetime.now(UTC)
    path = folder / f"{moment:%Y%m%dT%H%M%SZ}.json"
    run = {
        "at": moment.isoformat(timespec="seconds"),
        "quick": quick,
        "seconds": round(seconds, 1),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "lines": [line.as_json() for line in lines],
    }
    path.write_text(json.dumps(run, indent=2) + "\n")
    return path


def _bar(line: Line) -> str:
    if line.bar is None:
        return ""
    sign = "≤" if line.bar.lower_is_better else "≥"
    return f"{sign} {line.bar.limit:g}{line.unit}"


def _number(value: float) -> str:
    """Three significant digits, with thousands separators."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
