"""A receiver that takes 20 ms for each item: a transport that is a coroutine against a plain one in four threads."""

from __future__ import annotations

from bench.report import Line, at_least, ratio_line
from bench.rounds import alternate, compare
from bench.servers import Stand
from bench.worker import warm_worker

ITEMS = 10_000
PLAIN_ITEMS = 1_000
"""As many as four threads send in five seconds; more items would give the same rate."""
THREADS = 4


def twenty_milliseconds(stand: Stand) -> list[Line]:
    """With the default ``async_concurrency``."""
    with (
        stand.site(buckets=256, transport={"bench.transports.Awaits": {}}) as site,
        stand.site(buckets=256, transport={"bench.transports.Waits": {}}) as plain_site,
        warm_worker(site) as worker,
        warm_worker(plain_site) as plain_worker,
    ):
        table, plain_table = site.table(), plain_site.table()

        def coroutines() -> float:
            table.fill(ITEMS)
            return worker.drain_rate(ITEMS)

        def threads() -> float:
            plain_table.fill(PLAIN_ITEMS)
            return plain_worker.drain_rate(PLAIN_ITEMS)

        figures = alternate({"boxengine": coroutines, f"{THREADS} threads": threads}, rounds=stand.scale.rounds)
    work = f"drain {ITEMS:,}, receiver takes 20 ms: coroutines against {THREADS} threads"
    return [ratio_line(work, compare(figures, ours="boxengine"), at_least(20))]
