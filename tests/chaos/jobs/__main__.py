"""``python -m tests.chaos.jobs [--database mariadb] [--jobs N]``: faults against workers that run long jobs.

Prints a table, writes it as JSON to ``build/chaos/``, and keeps logs and effects of what was broken beside it.
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

from boxengine.cli.signals import stop_like_ctrl_c
from boxengine.embedded import EmbeddedPostgres
from tests.chaos.database import Database, MariaDB, PostgreSQL
from tests.chaos.jobs import report
from tests.chaos.jobs.faults import CATALOGUES
from tests.chaos.jobs.play import Plan, play
from tests.chaos.report import write
from tests.chaos.scene import Ground
from tests.chaos.snapshot import copy_of_the_code
from tests.servers.mariadb import MariaDBServer

RESULTS = Path("build") / "chaos"
JOBS = 20_000
"""Of all faults together."""
_WIDTH_OF_A_FILE = 180


def main(arguments: Sequence[str] | None = None) -> int:
    """Plays the faults that were named, all if none."""
    parser = _parser()
    options = parser.parse_args(arguments)
    known = CATALOGUES[options.database]
    unknown = [name for name in options.faults or () if name not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    faults = options.faults or list(known)
    began, stamp = time.monotonic(), f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-jobs"
    plan = Plan(
        jobs=-(-options.jobs // len(faults)),
        rate=options.rate,
        seed=options.seed,
        times=options.times,
        keep=options.keep,
    )
    console.print(f"seed {plan.seed}, {len(faults)} of {len(known)} faults, {plan.jobs:,} jobs or more in each")
    rows = []
    with _ground(options.database) as ground:
        for name in faults:
            row = play(name, known[name], ground, (RESULTS / f"{stamp}-{name}").resolve(), plan)
            console.print(report.sentence(row), highlight=False)
            rows.append(row)
    console.print(report.table(rows, title=f"boxengine: chaos of long jobs on {options.database}"))
    path, seconds = RESULTS / f"{stamp}.json", time.monotonic() - began
    write(path, rows, seed=plan.seed, seconds=seconds)
    console.print(f"{seconds:,.0f} s; written to {path}")
    return 1 if any(row.broken for row in rows) else 0


@contextmanager
def _ground(database: str) -> Iterator[Ground]:
    """A server and a copy of the code of this run's own."""
    with tempfile.TemporaryDirectory(prefix="boxengine-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the database's own account must be able to walk in where the caller is root
        with _database(database, folder) as server:
            yield Ground(server, copy_of_the_code(folder / "code"))


@contextmanager
def _database(name: str, folder: Path) -> Iterator[Database]:
    if name == "mariadb":
        with MariaDBServer(folder) as mariadb:
            yield MariaDB(mariadb)
    else:
        with EmbeddedPostgres(folder / "postgres", durable=False) as postgres:
            yield PostgreSQL(postgres)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.jobs", description=__doc__)
    parser.add_argument("--database", choices=list(CATALOGUES), default="postgres", help="postgres unless told")
    parser.add_argument("--faults", type=_names, help="a,b; all if left out")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"in all faults together; {JOBS} unless told")
    parser.add_argument("--rate", type=float, default=50.0, help="jobs per second")
    parser.add_argument("--times", type=int, help="each fault so often at most")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the moments and the victims")
    parser.add_argument("--keep", action="store_true", help="keep logs and effects of what holds as well")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
