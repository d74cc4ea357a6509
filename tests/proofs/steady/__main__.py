"""``python -m tests.proofs.steady [--seconds N]``: 5,000 items/s into a log with partitions, beside transactions that stay open.

First without them, until retention removes as much as is written; what is on disk then is the steady state. Then with three of
them at a time. Exit code 1 if the database took more than 1.2 times the room then, if p99 of a fresh item was over 25 ms, or if
an item was lost.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psycopg
from rich.console import Console
from rich.table import Table

from boxengine.cli.signals import stop_like_ctrl_c
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos.snapshot import REPOSITORY, copy_of_the_code
from tests.proofs.steady.judge import MOST_GROWTH, MOST_WAIT, Verdict
from tests.proofs.steady.play import KEPT_OPEN, Ended, Plan, play
from tests.servers.databases import fresh_postgres_database

RESULTS = Path("build") / "proofs"
_AHEAD = 256
"""Files of WAL that are there before the run. A server that has run for a while uses its old ones again. A new server makes each
of its files when the last one is full, and meanwhile, for 60 ms every 16 MB, nobody can commit."""
_SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "8GB", "min_wal_size": f"{16 * _AHEAD}MB"}
"""Buffers as in the benchmarks; durability stays the default."""
_WIDTH_OF_A_FILE = 180


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays it."""
    options = _parser().parse_args(arguments)
    plan = Plan(
        seconds=options.seconds,
        open_for=options.open_for,
        hour=options.hour,
        rate=options.rate,
        batch=options.batch,
        kept_open=options.kept_open,
    )
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE, highlight=False)
    began, stamp = time.monotonic(), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-steady"
    stage = (RESULTS / stamp).resolve()
    with tempfile.TemporaryDirectory(prefix="boxengine-proof-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the database's own account must be able to walk in where the caller is root
        code = copy_of_the_code(folder / "code")
        shutil.copytree(REPOSITORY / "tests" / "proofs", code / "tests" / "proofs")
        with (
            EmbeddedPostgres(folder / "postgres", settings=_SETTINGS) as postgres,
            EmbeddedValkey(folder / "valkey", durable=False) as valkey,
            fresh_postgres_database(postgres.url()) as url,
        ):
            _make_wal(postgres.url())
            try:
                verdict = play(url, valkey.url(), stage, code, plan, console.print)
            except (Ended, ValueError) as error:
                console.print(f"BROKEN: {error}; logs are in {stage}")
                return 1
    console.print(_table(verdict))
    for problem in verdict.problems:
        console.print(problem)
    path = RESULTS / f"{stamp}.json"
    path.write_text(json.dumps({"plan": asdict(plan), "verdict": asdict(verdict)}, indent=2) + "\n")
    if not (verdict.problems or options.keep):
        shutil.rmtree(stage)
    console.print(f"{'BROKEN' if verdict.problems else 'holds'}; {time.monotonic() - began:,.0f} s; written to {path}")
    return 1 if verdict.problems else 0


def _make_wal(url: str) -> None:
    """Fills files of WAL, and has the server keep them to be used again."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for _ in range(_AHEAD):
            connection.execute("SELECT pg_switch_wal() FROM pg_logical_emit_message(false, 'boxengine', 'x')")
        connection.execute("CHECKPOINT")


def _table(verdict: Verdict) -> Table:
    table = Table(title="boxengine: a log with partitions beside transactions that stay open")
    for name in ("", "none open", "always some open", "promised"):
        table.add_column(name, justify="right" if name else "left")
    megabytes = [f"{each.total / 1e6:,.1f} MB" for each in (verdict.steady, verdict.most)]
    positions = [f"{each.positions / 1e6:,.1f} MB" for each in (verdict.steady, verdict.most)]
    table.add_row("on disk, at most", *megabytes, "")
    table.add_row("of which positions", *positions, "")
    table.add_row("to the steady state", "", f"{verdict.growth:.2f}", f"<= {MOST_GROWTH:g}")
    table.add_row(
        "commit to transport, p99", f"{verdict.steady_p99:.1f} ms", f"{verdict.p99:.1f} ms", f"<= {MOST_WAIT:g} ms"
    )
    table.add_row("commit to transport, p50", "", f"{verdict.p50:.1f} ms", "")
    table.add_row("items/s written", "", f"{verdict.rate:,.0f}", "")
    table.add_row("items never received", "", f"{verdict.written - verdict.received:,}", "0")
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.steady", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="with transactions open; 600 unless told")
    parser.add_argument(
        "--open-for", type=float, default=120.0, help="seconds that each of them stays open; 120 unless told"
    )
    parser.add_argument(
        "--hour", type=float, default=30.0, help="seconds that an hour of the retention has; 30 unless told"
    )
    parser.add_argument("--rate", type=float, default=5000.0, help="items per second; 5000 unless told")
    parser.add_argument("--batch", type=int, default=25, help="items of a transaction; 25 unless told")
    parser.add_argument("--kept-open", choices=list(KEPT_OPEN), default="reads", help="what those transactions did")
    parser.add_argument("--keep", action="store_true", help="keep logs and record of what holds as well")
    return parser


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
