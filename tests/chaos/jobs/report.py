"""What a run reports: one row for each fault, as a table on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault: how often it was injected, into how much work, and what came of it."""

    fault: str
    times: int
    jobs: int
    runs: int
    """Attempts that left an effect."""
    refused: int = 0
    """Runs whose worker was told, by its own clock or by the database, that the job is not its own any more."""
    lost: int = 0
    at_once: int = 0
    zombies: int = 0
    unpreventable: int = 0
    """Effects of handlers that were held up between asking and acting: nothing is promised about them."""
    rerun: float | None = None
    """Seconds until a killed worker's job ran again, the longest; None: not applicable."""
    rerun_limit: float = 0.0
    note: str = ""
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    evidence: str = ""
    """Where logs, effects and findings were kept."""

    @property
    def broken(self) -> tuple[str, ...]:
        """One sentence for each promise that did not hold; none if all is well."""
        found = []
        if self.times == 0:
            found.append("the fault was never injected")
        if self.lost:
            found.append(f"{self.lost:,} jobs lost")
        if self.at_once:
            found.append(f"{self.at_once:,} runs at once")
        if self.zombies:
            found.append(f"{self.zombies:,} writes of zombies")
        if self.rerun is not None and self.rerun > self.rerun_limit:
            found.append(f"a job ran again after {self.rerun:.1f} s; {self.rerun_limit:g} s are promised")
        return (*found, *self.problems)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "broken": list(self.broken)}


def sentence(row: Row) -> str:
    """The row for somebody who waits for the next."""
    verdict = f"[red]{'; '.join(row.broken)}[/]" if row.broken else "[green]holds[/]"
    return f"{row.fault}: {row.times} times, {row.jobs:,} jobs, {row.seconds:.0f} s: {verdict}"


def table(rows: Sequence[Row], *, title: str) -> Table:
    """The rows for the terminal."""
    shown = Table(title=title)
    shown.add_column("fault")
    for name in ("times", "jobs", "runs", "refused", "lost", "at once", "zombie writes", "unpreventable", "runs again"):
        shown.add_column(name, justify="right")
    shown.add_column("verdict")
    for row in rows:
        counts = (row.times, row.jobs, row.runs, row.refused, row.lost, row.at_once, row.zombies, row.unpreventable)
        shown.add_row(
            row.fault,
            *(f"{count:,}" for count in counts),
            "" if row.rerun is None else f"{row.rerun:.1f} s (≤ {row.rerun_limit:g} s)",
            "[red]" + "\n".join(row.broken) + "[/]" if row.broken else "[green]holds[/]",
        )
    return shown
