"""``python -m tests.chaos.kafka [--rows a,b] [--items 100000] [--seed N]``: Kafka, both ways, with faults.

Prints a table, writes it as JSON to ``build/chaos/``, and keeps logs of what was broken beside it. Needs Java 17, and
Maven once. Exit code 1 if a promise did not hold.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from boxengine.cli.signals import stop_like_ctrl_c
from tests.chaos import report
from tests.chaos.kafka.catalogue import ROWS, play
from tests.chaos.kafka.plan import Plan
from tests.chaos.kafka.servers import running_servers

RESULTS = Path("build") / "chaos"
WIDTH_OF_A_FILE = 180


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays the rows that were named, all if none."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    plan = Plan(items=options.items, seed=options.seed)
    began, stamp = time.monotonic(), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-kafka"
    console.print(f"seed {plan.seed}, {plan.items:,} items in each row")
    rows = []
    with running_servers() as servers:
        for name in options.rows:
            row = play(name, servers, (RESULTS / f"{stamp}-{name}").resolve(), plan)
            console.print(report.sentence(row), f"  {row.note}" if row.note else "", highlight=False)
            rows.append(row)
    console.print(report.table(rows, title="boxengine: chaos around Kafka"))
    path = RESULTS / f"{stamp}.json"
    report.write(path, rows, seed=plan.seed, seconds=time.monotonic() - began)
    console.print(f"written to {path}")
    return 1 if any(row.broken for row in rows) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kafka", description=__doc__)
    parser.add_argument("--rows", type=_names, default=list(ROWS), help=f"a,b of {', '.join(ROWS)}; all if left out")
    parser.add_argument("--items", type=int, default=Plan().items, help="committed in each row (100000)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the moments")
    return parser


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in ROWS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(ROWS)}")
    return names


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
