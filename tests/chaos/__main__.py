"""``python -m tests.chaos [--faults a,b] [--items 20000] [--quick] [--minutes M]``: faults against real servers and workers.

Prints a table, writes it as JSON to ``build/chaos/``, and keeps logs and record of what was broken beside it.
Exit code 1 if a promise did not hold.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos import report
from tests.chaos.catalogue import FAULTS
from tests.chaos.play import Plan, play
from tests.chaos.snapshot import copy_of_the_code
from tests.chaos.stage import Servers

RESULTS = Path("build") / "chaos"
_WIDTH_OF_A_FILE = 180
_INJECTING = 0.6
"""Share of a fault's time for starting the workers and injecting; the rest is for what is still to be delivered then."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the faults that were named, all if none."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    if options.list:
        console.print("\n".join(FAULTS))
        return 0
    began, stamp = time.monotonic(), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    items = options.items or (4_000 if options.quick else 20_000)
    plan = Plan(
        items=items,
        rate=options.rate,
        seed=options.seed,
        most_times=2 if options.quick else None,
        keep=options.keep,
    )
    console.print(f"seed {plan.seed}, {plan.items:,} items or more in each fault")
    rows = []
    with running_servers() as servers:
        for number, name in enumerate(options.faults):
            until = None
            if options.minutes is not None:
                left = began + 60 * options.minutes - time.monotonic()
                until = time.monotonic() + _INJECTING * left / (len(options.faults) - number)
            row = play(name, FAULTS[name], servers, (RESULTS / f"{stamp}-{name}").resolve(), plan, until=until)
            console.print(report.sentence(row), highlight=False)
            rows.append(row)
    console.print(report.table(rows))
    path = RESULTS / f"{stamp}.json"
    seconds = time.monotonic() - began
    report.write(path, rows, seed=plan.seed, seconds=seconds)
    console.print(f"{seconds:,.0f} s; written to {path}")
    return 1 if any(row.broken for row in rows) else 0


@contextmanager
def running_servers() -> Iterator[Servers]:
    """A PostgreSQL, a Valkey and a copy of the code of this run's own."""
    with tempfile.TemporaryDirectory(prefix="boxengine-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL's own account must be able to walk in where the caller is root
        with (
            EmbeddedPostgres(folder / "postgres", durable=False) as postgres,
            EmbeddedValkey(folder / "valkey", durable=False) as valkey,
        ):
            yield Servers(postgres, valkey, copy_of_the_code(folder / "code"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--faults", type=_names, default=list(FAULTS), help="a,b; all if left out")
    parser.add_argument("--items", type=int, help="committed in each fault, at least; 20000, or 4000 with --quick")
    parser.add_argument("--rate", type=float, default=800.0, help="items per second while the faults go on")
    parser.add_argument("--quick", action="store_true", help="each fault twice at most, fewer items")
    parser.add_argument("--minutes", type=float, help="for all faults together; each gets its share of the injections")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the moments and the victims")
    parser.add_argument("--keep", action="store_true", help="keep logs and record of what holds as well")
    parser.add_argument("--list", action="store_true", help="name the faults and leave")
    return parser


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(FAULTS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
