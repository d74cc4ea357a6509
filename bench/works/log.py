"""``storage: log`` against ``storage: table`` and against the floor that marks rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from bench.floors.drain import UNBARRED, against, floors
from bench.report import Line, at_least, at_most, ratio_line
from bench.rounds import alternate, compare, spread_of
from bench.servers import Site, Stand
from bench.transports import Batches
from bench.worker import warm_worker

_BATCHES: dict[str, dict[str, str]] = {"bench.transports.Batches": {}}
_LOG = {"storage": "log"}
PARTS = 10
"""Of a run behind an open transaction; the last is held against the first."""


def few_buckets(stand: Stand) -> list[Line]:
    """16 buckets, the default."""
    return _drains(stand, buckets=16)


def many_buckets(stand: Stand) -> list[Line]:
    """256 buckets."""
    return _drains(stand, buckets=256)


def _drains(stand: Stand, *, buckets: int) -> list[Line]:
    count = stand.scale.pick(100_000, 20_000)
    written: list[float] = []
    with (
        stand.site(buckets=buckets, transport=_BATCHES, box_options=_LOG) as log_site,
        stand.site(buckets=buckets, transport=_BATCHES) as table_site,
        warm_worker(log_site) as log_worker,
        warm_worker(table_site) as table_worker,
    ):
        log, table = log_site.table(), table_site.table()

        def ours() -> float:
            log.fill(count)
            before = _wal(log_site)
            rate = log_worker.drain_rate(count)
            written.append((_wal(log_site) - before) / count)
            return rate

        def marking() -> float:
            table.fill(count)
            return table_worker.drain_rate(count)

        programs = {**against(ours, floors(table, Batches().call_batch, count)), "storage: table": marking}
        figures = alternate(programs, rounds=stand.scale.rounds)
    work = f"storage: log, drain {count:,}, batch transport, {buckets} buckets"
    marked = {name: rates for name, rates in figures.items() if name not in (UNBARRED, "storage: table")}
    tables = {name: figures[name] for name in ("boxengine", "storage: table")}
    return [
        ratio_line(work, compare(marked, ours="boxengine"), at_least(2.5)),
        ratio_line(f"{work}: against storage: table", compare(tables, ours="boxengine"), None),
        Line(
            work=f"{work}: WAL",
            figure=statistics.median(written),
            unit=" bytes/item",
            bar=at_most(20),
            spread=spread_of(written),
        ),
    ]


def old_transaction(stand: Stand) -> list[Line]:
    """A transaction that reads nothing stays open from the start; the box gets its items in ten parts."""
    part = stand.scale.pick(300_000, 3_000)
    lines = []
    for name, options in (("log", _LOG), ("table", {})):
        with (
            stand.site(buckets=16, transport=_BATCHES, box_options=options) as site,
            warm_worker(site) as worker,
            _open_transaction(site),
        ):
            table = site.table()
            rates = []
            for _ in range(PARTS):
                table.add(part)
                rates.append(worker.drain_rate(part))
        last = rates[-1] / rates[0]
        work = f"storage: {name}, {PARTS * part:,} behind an open transaction: last tenth to first"
        details = {"first items/s": rates[0], "last items/s": rates[-1]}
        lines.append(Line(work=work, figure=last, bar=at_least(0.9 if name == "log" else 0.6), details=details))
    return lines


@contextmanager
def _open_transaction(site: Site) -> Iterator[None]:
    with psycopg.connect(site.dsn) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT 1")
        yield


def _wal(site: Site) -> float:
    """Bytes that the server has written so far."""
    with psycopg.connect(site.dsn, autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        return float(row[0]) if row else 0.0
