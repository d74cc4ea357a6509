"""``python -m bench.peers [--quick] [--rounds N] [NAME ...]``: prints a table, and writes it as JSON to ``bench/results``."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.peers.rounds import PASSES, RATE, WRITERS, Round, Sizes, Stand
from bench.peers.systems import SYSTEMS, System
from bench.servers import BUFFERS
from boxengine.cli.signals import stop_like_ctrl_c
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey

RESULTS = Path(__file__).parent.parent / "results"
FULL = Sizes(drain=20_000, slow_drain=2_000, waits=200, commits=3_200)
QUICK = Sizes(drain=5_000, slow_drain=500, waits=50, commits=800)
UNFAIR = (
    "boxengine keeps the order of each key; none of the others does.",
    "dramatiq sends to Redis: no transaction, so its messages cost no commit, and can be lost.",
    "The others have the best settings that we found in their documentation; boxengine its defaults, and strict_order: key.",
    "boxengine's long jobs have a lease, a fence token and a journal each, and their handler runs in threads.",
    "boxengine's transport takes batches; the others call their handler for each message.",
    "p99 of so few messages does not rank anybody.",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the rounds: one system after the other, in another order each round."""
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 140)
    systems = [system for system in SYSTEMS if not options.names or system.name in options.names]
    for system in systems:
        console.print(f"[dim]{system.name}: {', '.join(system.requirements) or 'this checkout'}[/]", highlight=False)
        system.python()
    results = _rounds(systems, options.rounds or (1 if options.quick else 5), QUICK if options.quick else FULL, console)
    console.print(_table(results))
    for sentence in UNFAIR:
        console.print(f"- {sentence}", highlight=False)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"peers-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps({name: [asdict(each) for each in rounds] for name, rounds in results.items()}, indent=1))
    console.print(f"written to {path}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all if none: {', '.join(s.name for s in SYSTEMS)}")
    parser.add_argument("--quick", action="store_true", help="one round of less")
    parser.add_argument("--rounds", type=int, help="5, or 1 with --quick")
    return parser


def _rounds(systems: Sequence[System], count: int, sizes: Sizes, console: Console) -> dict[str, list[Round]]:
    results: dict[str, list[Round]] = {system.name: [] for system in systems}
    with tempfile.TemporaryDirectory(prefix="boxengine-peers-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs under another account if the caller is root, and must be able to enter
        with (
            EmbeddedPostgres(folder / "postgres", durable=True, settings=BUFFERS) as postgres,
            EmbeddedValkey(folder / "valkey", durable=False) as valkey,
        ):
            stand = Stand(postgres.url().replace("+psycopg", ""), valkey.url(), sizes)
            for number in range(count):
                turn = number % len(systems)
                for system in (*systems[turn:], *systems[:turn]):
                    result = stand.round(system)
                    results[system.name].append(result)
                    console.print(
                        f"[dim]round {number + 1} of {count}, {system.name}: {_sentence(result)}[/]", highlight=False
                    )
    return results


def _sentence(each: Round) -> str:
    return f"{each.drained:,.0f}/s, p50 {each.p50:.1f} ms, {each.commits:,.0f} commits/s"


def _table(results: Mapping[str, Sequence[Round]]) -> Table:
    table = Table(title="beside peers: medians (lowest to highest)")
    for heading in (
        "system",
        "messages/s drained",
        f"behind an open transaction, pass {PASSES} to 1",
        f"p50 at {RATE}/s",
        "p99",
        f"commits/s of {WRITERS} writers",
    ):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for name, rounds in results.items():
        table.add_row(
            name,
            _figure(rounds, lambda each: each.drained, ",.0f"),
            _figure(rounds, lambda each: each.behind, ".2f"),
            _figure(rounds, lambda each: each.p50, ".1f"),
            _figure(rounds, lambda each: each.p99, ".1f"),
            _figure(rounds, lambda each: each.commits, ",.0f"),
        )
    return table


def _figure(rounds: Sequence[Round], figure: Callable[[Round], float | None], form: str) -> str:
    found = [value for value in map(figure, rounds) if value is not None]
    if not found:
        return "-"
    median = f"{statistics.median(found):{form}}"
    return median if len(found) == 1 else f"{median} ({min(found):{form}} to {max(found):{form}})"


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
