"""The indexes that ``db create`` makes against those of sbmt-outbox, under the same floor program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bench.floors.drain import by_id, drain, own_buckets
from bench.report import Line, at_least, ratio_line
from bench.rounds import alternate, compare
from bench.servers import Site, Stand
from bench.table import BenchTable
from bench.transports import Batches

_REFERENCE = "reference_items"


def indexes(stand: Stand) -> list[Line]:
    """Each set of indexes with the row order that it serves best; one thread and batches of 1,000, so the database dominates."""
    count = stand.scale.pick(50_000, 20_000)
    with stand.site(buckets=256, transport={"bench.transports.Batches": {}}) as site:
        ours = site.table()
        theirs = _reference_table(site)
        figures = alternate(
            {
                "boxengine's": _program(ours, count, by_bucket=True),
                "the reference's": _program(theirs, count, by_bucket=False),
                "the reference's, by bucket": _program(theirs, count, by_bucket=True),
            },
            rounds=stand.scale.rounds,
        )
    work = "the floor program on db create's indexes against the reference's"
    return [ratio_line(work, compare(figures, ours="boxengine's"), at_least(1.5))]


def _program(table: BenchTable, count: int, *, by_bucket: bool) -> Callable[[], float]:
    shares = (own_buckets if by_bucket else by_id)(table, threads=1, batch=1_000)

    def run() -> float:
        table.fill(count)
        return drain(table, Batches().call_batch, count, shares)

    return run


def _reference_table(site: Site) -> BenchTable:
    table = replace(site.table(), name=_REFERENCE)
    site.execute(f"CREATE TABLE {_REFERENCE} (LIKE {site.table().name} INCLUDING DEFAULTS INCLUDING IDENTITY)")
    for statement in (
        "ALTER TABLE {} ADD PRIMARY KEY (id)",
        "CREATE UNIQUE INDEX ON {} (uuid)",
        "CREATE INDEX ON {} (status, id, bucket) INCLUDE (errors_count)",
        "CREATE INDEX ON {} (event_key, id)",
        "CREATE INDEX ON {} (created_at)",
    ):
        site.execute(statement.format(_REFERENCE))
    return table
