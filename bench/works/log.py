"""``storage: log`` against ``storage: table`` and against the floor that marks rows."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

import psycopg

from bench.floors.drain import PAYLOAD, UNBARRED, Send, against, floors
from bench.report import Bar, Line, at_least, at_most, ratio_line
from bench.rounds import alternate, compare, spread_of
from bench.servers import Site, Stand
from bench.table import BenchTable
from bench.transports import Batches, Singles
from bench.worker import WarmWorker, warm_worker

_BATCHES: dict[str, dict[str, str]] = {"bench.transports.Batches": {}}
_LOG = {"storage": "log"}
PARTS = 10
"""The parts of a run behind an open transaction; the last is compared with the first."""
FRESH = 100
"""The number of items that follow one by one."""


def few_buckets(stand: Stand) -> list[Line]:
    """16 buckets, the default."""
    return _drains(stand, buckets=16, kind="batch transport", bar=at_least(2.5))


def many_buckets(stand: Stand) -> list[Line]:
    """256 buckets."""
    return _drains(stand, buckets=256, kind="batch transport", bar=at_least(2.5))


def one_by_one(stand: Stand) -> list[Line]:
    """A transport for single items inside one item middleware; the floor has no middleware."""
    single = Singles()

    def send(rows: Sequence[Any]) -> None:
        for row in rows:
            single(row, row[PAYLOAD])

    return _drains(
        stand,
        buckets=256,
        kind="one by one, one item middleware",
        bar=at_least(1.5),
        transport={"bench.transports.Singles": {}},
        send=send,
        middlewares={"item_process": ["bench.transports.Around"]},
    )


def _drains(
    stand: Stand,
    *,
    buckets: int,
    kind: str,
    bar: Bar,
    transport: Mapping[str, Mapping[str, Any]] = _BATCHES,
    send: Send | None = None,
    **settings: Any,
) -> list[Line]:
    """Args:
    send: what the floor does with its rows; by default the same as ``transport``.
    settings: of the two sites.
    """
    count = stand.scale.pick(100_000, 20_000)
    written: list[float] = []
    with (
        stand.site(buckets=buckets, transport=transport, box_options=_LOG, **settings) as log_site,
        stand.site(buckets=buckets, transport=transport, **settings) as table_site,
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

        floor_programs = floors(table, send or Batches().call_batch, count)
        programs = {**against(ours, floor_programs), "storage: table": marking}
        figures = alternate(programs, rounds=stand.scale.rounds)
    work = f"storage: log, drain {count:,}, {kind}, {buckets} buckets"
    marked = {name: rates for name, rates in figures.items() if name not in (UNBARRED, "storage: table")}
    tables = {name: figures[name] for name in ("boxengine", "storage: table")}
    return [
        ratio_line(work, compare(marked, ours="boxengine"), bar),
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
    """A transaction stays open from the start; the box gets its items in ten parts, then some more one by one.

    A part takes a second or a few, so the machine's own ups and downs show in each ratio. Hence the rounds, and the same
    without an open transaction beside them.
    """
    tried = [
        ("log", _LOG, READING),
        ("log", _LOG, NONE),
        ("table", {}, READING),
        ("table", {}, WRITING),
        ("table", {}, NONE),
    ]
    part = stand.scale.pick(300_000, 3_000)
    decays: dict[str, list[_Decay]] = {}
    for _ in range(stand.scale.long_rounds()):
        for storage, options, kept_open in tried:
            with (
                stand.site(buckets=16, transport=_BATCHES, box_options=options) as site,
                warm_worker(site) as worker,
                _open_transaction(site, kept_open),
            ):
                work = f"storage: {storage}, {PARTS * part:,} {kept_open.name}"
                decays.setdefault(work, []).append(_decay(site.table(), worker, part))
    return [
        line
        for (storage, _, kept_open), (work, rounds) in zip(tried, decays.items(), strict=True)
        for line in _decay_lines(work, rounds, None if kept_open is NONE else _DECAY_BARS[storage])
    ]


class _Decay(NamedTuple):
    """One run beside a transaction, or without one."""

    rates: list[float]
    """Items per second, part by part."""
    waits: list[float]
    """Milliseconds of each fresh item."""


_DECAY_BARS = {"log": (at_least(0.9), at_most(25)), "table": (at_least(0.6), at_most(100))}
"""By storage: of the last tenth's rate to the first's, and of a fresh item's p99 in milliseconds."""


def _decay(table: BenchTable, worker: WarmWorker, part: int) -> _Decay:
    rates = []
    for _ in range(PARTS):
        table.add(part)
        rates.append(worker.drain_rate(part))
    waits = []
    for _ in range(FRESH):
        table.add(1)
        waits.append(1000 / worker.drain_rate(1))
    return _Decay(rates, waits)


def _decay_lines(work: str, rounds: Sequence[_Decay], bars: tuple[Bar, Bar] | None) -> Iterator[Line]:
    rate_bar, wait_bar = bars or (None, None)
    ratios = [decay.rates[-1] / decay.rates[0] for decay in rounds]
    yield Line(
        work=f"{work}: last tenth to first",
        figure=statistics.median(ratios),
        bar=rate_bar,
        spread=spread_of(ratios),
        details={
            "first items/s": statistics.median(decay.rates[0] for decay in rounds),
            "last items/s": statistics.median(decay.rates[-1] for decay in rounds),
        },
    )
    slowest = [statistics.quantiles(decay.waits, n=100)[98] for decay in rounds]
    yield Line(
        work=f"{work}: a fresh item, p99",
        figure=statistics.median(slowest),
        unit=" ms",
        bar=wait_bar,
        spread=spread_of(slowest),
        details={"p50": statistics.median(wait for decay in rounds for wait in decay.waits)},
    )


class Open(NamedTuple):
    """A transaction that nobody ends, or none."""

    name: str
    statements: Sequence[LiteralString]


NONE = Open("without an open transaction", [])
READING = Open("behind an open transaction that reads", ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "SELECT 1"])
WRITING = Open(
    "behind an open transaction that writes elsewhere",
    ["CREATE TABLE elsewhere (id int)", "INSERT INTO elsewhere VALUES (1)"],
)


@contextmanager
def _open_transaction(site: Site, kept_open: Open) -> Iterator[None]:
    with psycopg.connect(site.dsn) as connection:
        for statement in kept_open.statements:
            connection.execute(statement)
        yield
        connection.rollback()


def _wal(site: Site) -> float:
    """Bytes that the server has written so far."""
    with psycopg.connect(site.dsn, autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        return float(row[0]) if row else 0.0
