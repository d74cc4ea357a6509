"""What a poll costs in a table full of other rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from bench.report import Line, at_least, at_most, ratio_line
from bench.rounds import alternate, compare, percentile, spread_of
from bench.servers import OUTBOX, Site, Stand
from bench.worker import warm_worker
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.app.servers.database import connect_store
from boxengine.domain.box import Box

PARTITIONS = 6
LIMIT = 300
"""The rows of one poll: the sum of the defaults for regular and retryable rows."""
POLLS = 120
_BATCHES: dict[str, dict[str, str]] = {"bench.transports.Batches": {}}
_SMALL_PAYLOAD = 50
"""Payload bytes of rows that no poll reads."""


def delivered_rows(stand: Stand) -> list[Line]:
    """Polls in a table of five million delivered rows, and in one of 50,000."""
    lines = []
    with stand.site(buckets=256, transport=_BATCHES) as site:
        table = site.table()
        table.fill(0)
        have = 0
        for delivered in (50_000, stand.scale.pick(5_000_000, 500_000)):
            table.add(delivered - have, delivered=True, payload=_SMALL_PAYLOAD)
            have = delivered
            for pending in (0, 1_000):
                table.add(pending)
                table.settle_down()
                lines.append(_line(f"poll, {delivered:,} delivered, {pending:,} pending", _polls(site), 2.0))
            site.execute(f"DELETE FROM {table.name} WHERE status = 0")
    return lines


def backlog(stand: Stand) -> list[Line]:
    """A million pending rows: polls, and the rate at which they are drained."""
    small, large = stand.scale.pick(50_000, 20_000), stand.scale.pick(1_000_000, 200_000)
    with stand.site(buckets=256, transport=_BATCHES) as site, warm_worker(site) as worker:
        table = site.table()
        figures: dict[str, list[float]] = {f"{small:,} pending": [], "backlog": []}
        before: list[float] = []
        after: list[float] = []
        for _ in range(stand.scale.long_rounds()):
            table.fill(small)
            figures[f"{small:,} pending"].append(worker.drain_rate(small))
            table.fill(large)
            before += _polls(site)
            figures["backlog"].append(worker.drain_rate(large))
            after += _polls(site)
    return [
        _line(f"poll, {large:,} pending", before, 10.0),
        _line("poll right after these were drained, nothing vacuumed by hand", after, 10.0),
        ratio_line(f"drain of {large:,} against {small:,}", compare(figures, ours="backlog"), at_least(0.85)),
    ]


def bloat(stand: Stand) -> list[Line]:
    """The rate after five million items have gone through the same table, with autovacuum, against the rate in a fresh table."""
    chunk, chunks = stand.scale.pick(100_000, 20_000), stand.scale.pick(50, 8)
    with (
        stand.site(buckets=256, transport=_BATCHES) as used_site,
        stand.site(buckets=256, transport=_BATCHES) as fresh_site,
        warm_worker(used_site) as used_worker,
        warm_worker(fresh_site) as fresh_worker,
    ):
        table = used_site.table()
        table.fill(0)

        def used() -> float:
            table.add(chunk)
            return used_worker.drain_rate(chunk)

        def fresh() -> float:
            fresh_site.table().fill(0)
            fresh_site.table().add(chunk)
            return fresh_worker.drain_rate(chunk)

        on_the_way = [used() for _ in range(chunks)]
        # The first drains were minutes ago, when the machine may have been faster or slower.
        figures = alternate({"used": used, "fresh": fresh}, rounds=stand.scale.rounds)
    work = f"rate after {chunk * chunks:,} items through one table"
    edge = max(1, chunks // 10)
    first_and_last = {"first": on_the_way[:edge], "last": on_the_way[-edge:]}
    return [
        ratio_line(f"{work}, against a fresh one's", compare(figures, ours="used"), at_least(0.85)),
        ratio_line(f"{work}: its last tenth against its first", compare(first_and_last, ours="last"), None),
    ]


def _polls(site: Site) -> list[float]:
    """The duration in milliseconds of each of many polls, partition after partition."""
    store = connect_store(site.boxes.resolved.settings)
    box = site.boxes.box(OUTBOX)
    try:
        _poll(store, box, 0)  # opens the connection, and looks up the table
        return [_timed(partial(_poll, store, box, number % PARTITIONS)) for number in range(POLLS)]
    finally:
        store.close()


def _poll(store: SqlStore, box: Box, partition: int) -> None:
    store.poll(box, box.partition(partition, PARTITIONS), LIMIT)


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000


def _line(work: str, milliseconds: list[float], limit: float) -> Line:
    return Line(
        work=work,
        figure=percentile(milliseconds, 0.5),
        unit=" ms",
        bar=at_most(limit),
        spread=spread_of(milliseconds),
        details={"p95 ms": percentile(milliseconds, 0.95)},
    )
