"""``python -m bench [--quick]``: prints the table and writes it as JSON to ``bench/results/``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.create import create_batches, create_one_by_one
from bench.drain import Bench, drain, drain_singly
from bench.rounds import Line

RESULTS = Path(__file__).parent / "results"


def main() -> int:
    """Exit code 1 if a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and items")
    quick = parser.parse_args().quick
    console = Console(width=None if sys.stdout.isatty() else 140)
    count, rounds = (20_000, 3) if quick else (50_000, 5)
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="boxengine-bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        bench = Bench(Path(folder), rounds=rounds)
        with bench.running():
            works: list[Callable[[], Line]] = [
                lambda: drain(bench, buckets=16, count=count, bar=0.90),
                lambda: drain(bench, buckets=256, count=count, bar=0.90),
                lambda: drain_singly(bench, count=count, bar=0.75),
                lambda: create_one_by_one(bench, count=500 if quick else 2_000, bar=0.85),
                lambda: create_batches(bench, count=10_000 if quick else 30_000, bar=0.85),
            ]
            for work in works:
                line = work()
                lines.append(line)
                console.print(f"{line.work}: {line.ratio:.2f} of the floor")
    console.print(_table(lines))
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps([line.as_json() for line in lines], indent=2))
    return 0 if all(line.reached for line in lines) else 1


def _table(lines: list[Line]) -> Table:
    table = Table("work", "bar", "ratio", "spread", "floor items/s", "boxengine items/s", "verdict")
    for line in lines:
        low, high = line.spread
        table.add_row(
            line.work,
            f"{line.bar:.2f}",
            f"{line.ratio:.2f}",
            f"{low:.2f} to {high:.2f}",
            f"{line.floor:,.0f}",
            f"{line.ours:,.0f}",
            "reached" if line.reached else "missed",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
