"""``python -m tests.proofs.order [--items N]``: 64 writers of the same 100 keys, transactions of random length, and SIGKILL.

Plays two halves. With a row lock for each key, deliveries must follow what the lock counts. Without any lock, no item may be
delivered after one of its key that was written after its commit (``storage: log`` alone promises that). Exit code 1 if one was,
or if an item was lost.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from boxengine.cli.signals import stop_like_ctrl_c
from boxengine.domain.box import Storage
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos.report import write
from tests.chaos.snapshot import REPOSITORY, copy_of_the_code
from tests.proofs.order.play import ORDERS, Plan, Result, play
from tests.servers.databases import fresh_postgres_database

RESULTS = Path("build") / "proofs"
_SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "4GB"}
_WIDTH_OF_A_FILE = 180
_HALVES = {"counter": "a row lock for each key", "snapshot": "no lock"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays both halves, or the one that was named."""
    options = _parser().parse_args(arguments)
    storage = Storage(options.storage)
    halves = (
        [options.half] if options.half else [each for each in ORDERS if each == "counter" or storage is Storage.LOG]
    )
    plan = Plan(
        items=options.items,
        workers=options.workers,
        kill_every=options.kill_every,
        seconds=60 * options.minutes / len(halves),
        seed=options.seed,
        storage=storage,
    )
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE, highlight=False)
    console.print(f"seed {plan.seed}, {plan.items:,} items or more in each of {len(halves)} halves")
    began, stamp = time.monotonic(), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-order"
    results = []
    with tempfile.TemporaryDirectory(prefix="boxengine-proof-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the database's own account must be able to walk in where the caller is root
        code = copy_of_the_code(folder / "code")
        shutil.copytree(REPOSITORY / "tests" / "proofs", code / "tests" / "proofs")
        with (
            EmbeddedPostgres(folder / "postgres", settings=_SETTINGS) as postgres,
            EmbeddedValkey(folder / "valkey", durable=False) as valkey,
        ):
            for half in halves:
                console.print(f"{_HALVES[half]}:")
                stage = (RESULTS / f"{stamp}-{half}").resolve()
                with fresh_postgres_database(postgres.url()) as url:
                    result = play(half, url, valkey.url(), stage, code, plan, console.print)
                results.append(result)
                if not (result.broken or options.keep):
                    shutil.rmtree(stage)
    console.print(_table(results))
    for result in results:
        for problem in result.problems:
            console.print(f"{_HALVES[result.order]}: {problem}")
    path = RESULTS / f"{stamp}.json"
    write(path, results, seed=plan.seed, seconds=time.monotonic() - began)
    broken = any(result.broken for result in results)
    console.print(f"{'BROKEN' if broken else 'holds'}; {time.monotonic() - began:,.0f} s; written to {path}")
    return 1 if broken else 0


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="boxengine: order under random transactions and SIGKILL")
    for name in (
        "writers have",
        "storage",
        "items",
        "lost",
        "inversions",
        "not committed",
        "repeated",
        "accused",
        "kills",
        "items/s",
    ):
        table.add_column(name, justify="left" if name in ("writers have", "storage") else "right")
    for each in results:
        numbers = (each.items, each.lost, each.inversions, each.unknown, each.repeated, each.accused)
        kills = f"{each.workers_killed} workers, {each.writers_killed} of writers"
        rate = f"{each.items / max(each.seconds, 0.1):,.0f}"
        table.add_row(_HALVES[each.order], each.storage, *(f"{number:,}" for number in numbers), kills, rate)
    return table


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proofs.order", description=__doc__)
    parser.add_argument("--items", type=int, default=2_000_000, help="of each half, at least; 2000000 unless told")
    parser.add_argument(
        "--half", choices=list(ORDERS), help="one of them alone: counter is with locks, snapshot without"
    )
    parser.add_argument(
        "--storage", choices=[each.value for each in Storage], default="log", help="table: with locks alone"
    )
    parser.add_argument("--workers", type=int, default=3, help="processes")
    parser.add_argument("--kill-every", type=float, default=5.0, help="seconds between two kills, on average")
    parser.add_argument(
        "--minutes", type=float, default=90.0, help="for all; what is not done by then counts as broken"
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the moments and the victims")
    parser.add_argument("--keep", action="store_true", help="keep logs and record of what holds as well")
    return parser


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
