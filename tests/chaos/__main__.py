"""``python -m tests.chaos [--database mariadb | --storage log] [--faults a,b | --all]``: faults against real servers and workers.

Prints a table, writes it as JSON to ``build/chaos/``, and keeps logs and record of what was broken beside it.
Exit code 1 if a promise did not hold.
"""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from rich.console import Console

from boxengine.cli.signals import stop_like_ctrl_c
from boxengine.domain.box import Storage
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from tests.chaos import report
from tests.chaos.catalogue import FAULTS, NOT_ON_A_LOG, NOT_ON_MARIADB, ON_MARIADB, ON_PARTITIONS
from tests.chaos.database import Database, MariaDB, PostgreSQL
from tests.chaos.fault import Fault
from tests.chaos.play import Plan, play
from tests.chaos.snapshot import copy_of_the_code
from tests.chaos.stage import Servers
from tests.servers.mariadb import MariaDBServer

CATALOGUES = {"postgres": FAULTS, "mariadb": ON_MARIADB}
NO_OPTIONS: Mapping[str, object] = MappingProxyType({})
RESULTS = Path("build") / "chaos"
SAMPLE = 22
"""Faults of a run that names none: so many fit into 20 minutes."""
PARTITIONS = {"log_partitions": "P1D"}
ALWAYS = ("partitions-dropped", "sigkill-worker", "postgres-immediate", "promotion-vip", "mariadb-kill")
_WIDTH_OF_A_FILE = 180
_INJECTING = 0.6
"""Share of a fault's time for starting the workers and injecting; the rest is for what is still to be delivered then."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the faults that were named, a sample if none."""
    parser = _parser()
    options = parser.parse_args(arguments)
    storage = Storage(options.storage)
    if storage is Storage.LOG and options.database != "postgres":
        parser.error("--storage log is PostgreSQL's")
    if options.partitions and storage is not Storage.LOG:
        parser.error("--partitions are a log's: add --storage log")
    known = _applying(options.database, storage, partitions=options.partitions)
    unknown = [name for name in options.faults or () if name not in known]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    if options.list:
        console.print("\n".join(known))
        if options.database == "mariadb":
            console.print("\n".join(f"not {name}: {reason}" for name, reason in NOT_ON_MARIADB.items()))
        if storage is Storage.LOG:
            console.print("\n".join(f"not {name}: {reason}" for name, reason in NOT_ON_A_LOG.items()))
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
    faults = options.faults or (list(known) if options.all or options.quick else sample(known, plan.seed))
    console.print(f"seed {plan.seed}, {len(faults)} of {len(known)} faults, {plan.items:,} items or more in each")
    rows = []
    with running_servers(options.database, storage, PARTITIONS if options.partitions else {}) as servers:
        for number, name in enumerate(faults):
            until = None
            if options.minutes is not None:
                left = began + 60 * options.minutes - time.monotonic()
                until = time.monotonic() + _INJECTING * left / (len(faults) - number)
            row = play(name, known[name], servers, (RESULTS / f"{stamp}-{name}").resolve(), plan, until=until)
            console.print(report.sentence(row), highlight=False)
            rows.append(row)
    console.print(report.table(rows, title=f"boxengine: chaos on {options.database}, storage: {storage.value}"))
    path = RESULTS / f"{stamp}.json"
    seconds = time.monotonic() - began
    report.write(path, rows, seed=plan.seed, seconds=seconds)
    console.print(f"{seconds:,.0f} s; written to {path}")
    return 1 if any(row.broken for row in rows) else 0


def _applying(database: str, storage: Storage, *, partitions: bool) -> Mapping[str, Fault]:
    known = dict(CATALOGUES[database])
    if storage is Storage.LOG:
        known = {name: fault for name, fault in known.items() if name not in NOT_ON_A_LOG}
    return {**known, **ON_PARTITIONS} if partitions else known


def sample(known: Mapping[str, Fault], seed: int) -> list[str]:
    """As many faults as there is time for, in the order of the table; another seed, another sample."""
    always = [name for name in ALWAYS if name in known]
    others = [name for name in known if name not in always]
    drawn = {*always, *random.Random(seed).sample(others, min(SAMPLE - len(always), len(others)))}
    return [name for name in known if name in drawn]


@contextmanager
def running_servers(
    database: str, storage: Storage = Storage.TABLE, box_options: Mapping[str, object] = NO_OPTIONS
) -> Iterator[Servers]:
    """A database server, a Valkey and a copy of the code of this run's own."""
    with tempfile.TemporaryDirectory(prefix="boxengine-chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)  # the database's own account must be able to walk in where the caller is root
        with (
            _database(database, folder) as server,
            EmbeddedValkey(folder / "valkey", durable=False) as valkey,
        ):
            yield Servers(server, copy_of_the_code(folder / "code"), valkey, storage, box_options)


@contextmanager
def _database(name: str, folder: Path) -> Iterator[Database]:
    if name == "mariadb":
        with MariaDBServer(folder) as mariadb:
            yield MariaDB(mariadb)
    else:
        with EmbeddedPostgres(folder / "postgres", durable=False) as postgres:
            yield PostgreSQL(postgres)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--database", choices=list(CATALOGUES), default="postgres", help="postgres unless told")
    parser.add_argument("--storage", choices=[each.value for each in Storage], default="table", help="of every box")
    parser.add_argument("--partitions", action="store_true", help="every log has them, and retention drops some")
    parser.add_argument("--faults", type=_names, help="a,b; a sample if left out")
    parser.add_argument("--all", action="store_true", help="every fault, however long it takes")
    parser.add_argument("--items", type=int, help="committed in each fault, at least; 20000, or 4000 with --quick")
    parser.add_argument("--rate", type=float, default=800.0, help="items per second while the faults go on")
    parser.add_argument("--quick", action="store_true", help="each fault twice at most, fewer items")
    parser.add_argument("--minutes", type=float, help="for all faults together; each gets its share of the injections")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6), help="of the moments and the victims")
    parser.add_argument("--keep", action="store_true", help="keep logs and record of what holds as well")
    parser.add_argument("--list", action="store_true", help="name the faults and leave")
    return parser


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


if __name__ == "__main__":
    stop_like_ctrl_c()  # servers and workers end with this process
    sys.exit(main())
