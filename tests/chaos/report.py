"""What a chaos run reports: one row for each fault, as a table on the terminal and as JSON.

A row knows nothing of how its fault was made or judged, so that any suite of faults can fill it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from rich.table import Table


class Reported(Protocol):
    """What can be written: a row of any suite."""

    def as_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One fault: how often it was injected, into how much work, and what came of it."""

    fault: str
    times: int
    """How often the fault was injected."""
    items: int
    """Committed while the faults went on."""
    lost: int = 0
    """Committed, and neither delivered nor visibly failed or discarded."""
    reordered: int = 0
    """First deliveries that overtook an earlier item which they must not overtake."""
    duplicates: int = 0
    """Deliveries beyond the first of an item, but for those that a retry explains."""
    in_work: int = 0
    """The most duplicates that the faults explain: what was in work each time."""
    longest_stall: float = 0.0
    """Seconds without any delivery while items were waiting."""
    recovery: float | None = None
    """Seconds from the end of a fault to the next delivery, the worst of all times; None: not applicable."""
    recovery_limit: float | None = None
    """Seconds that are promised; None: no promise."""
    note: str = ""
    problems: tuple[str, ...] = ()
    """What else was found broken, one sentence each."""
    seconds: float = 0.0
    """How long the row took."""
    evidence: str = ""
    """Where seed, logs and record were kept; empty unless something was broken."""

    @property
    def broken(self) -> tuple[str, ...]:
        """One sentence for each promise that did not hold; none if all is well."""
        found = []
        if self.times == 0:
            found.append("the fault was never injected")
        if self.lost:
            found.append(f"{self.lost:,} items lost")
        if self.reordered:
            found.append(f"{self.reordered:,} items reordered")
        if self.duplicates > self.in_work:
            found.append(f"{self.duplicates:,} duplicates, and at most {self.in_work:,} items were in work")
        if self.recovery is not None and self.recovery_limit is not None and self.recovery > self.recovery_limit:
            found.append(f"recovery took {self.recovery:.1f} s; {self.recovery_limit:g} s are promised")
        return (*found, *self.problems)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "broken": list(self.broken)}


def sentence(row: Row) -> str:
    """The row for somebody who waits for the next."""
    verdict = f"[red]{'; '.join(row.broken)}[/]" if row.broken else "[green]holds[/]"
    return f"{row.fault}: {row.times} times, {row.items:,} items, {row.seconds:.0f} s: {verdict}"


def table(rows: Sequence[Row], *, title: str = "boxengine: chaos") -> Table:
    """The rows for the terminal."""
    shown = Table(title=title)
    shown.add_column("fault")
    for name in ("times", "items", "lost", "reordered", "duplicates", "longest stall", "recovery"):
        shown.add_column(name, justify="right")
    shown.add_column("verdict")
    for row in rows:
        shown.add_row(
            row.fault,
            f"{row.times:,}",
            f"{row.items:,}",
            f"{row.lost:,}",
            f"{row.reordered:,}",
            f"{row.duplicates:,} of {row.in_work:,}" if row.in_work else f"{row.duplicates:,}",
            f"{row.longest_stall:.1f} s",
            _recovery(row),
            "[red]" + "\n".join(row.broken) + "[/]" if row.broken else "[green]holds[/]",
        )
    return shown


def write(path: Path, rows: Sequence[Reported], *, seed: int, seconds: float) -> None:
    """The run as JSON.

    Args:
        seed: with which the run can be had again, as far as timing allows.
        seconds: of the whole run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    run = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
        "seconds": round(seconds, 1),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "rows": [row.as_json() for row in rows],
    }
    path.write_text(json.dumps(run, indent=2) + "\n")


def _recovery(row: Row) -> str:
    if row.recovery is None:
        return ""
    limit = "" if row.recovery_limit is None else f" (≤ {row.recovery_limit:g} s)"
    return f"{row.recovery:.1f} s{limit}"
