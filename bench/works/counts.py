"""What a full drain sends: statements per item, jobs popped for nothing, Redis commands per item."""

from __future__ import annotations

import statistics
from dataclasses import replace

from bench.counting import CountingQueue, JobObserver, JobTally, StatementLog, redis_commands
from bench.report import Line, at_most
from bench.rounds import spread_of
from bench.servers import Site, Stand
from bench.worker import SettledCounter, inner_worker
from boxengine.app.servers.connected import connect


def counts(stand: Stand) -> list[Line]:
    """SQL statements and Redis commands per delivered item, and wasted pops, in a full drain."""
    count = stand.scale.pick(50_000, 20_000)
    rounds = stand.scale.long_rounds()
    with stand.site(buckets=256, transport={"bench.transports.Batches": {}}) as site:
        log = StatementLog(site)
        drains = [_drain(site, log, count) for _ in range(rounds)]
    statements, commands, wasted = (list(figures) for figures in zip(*drains, strict=True))
    return [
        Line(
            work=f"SQL statements per item, drain of {count:,}",
            figure=statistics.median(statements),
            bar=at_most(0.05),
            spread=spread_of(statements),
            note="BEGIN and COMMIT included",
        ),
        Line(
            work=f"Redis commands per item, drain of {count:,}",
            figure=statistics.median(commands),
            spread=spread_of(commands),
            note="those inside scripts included",
        ),
        Line(
            work="wasted pops: jobs popped with nothing to do",
            figure=100 * statistics.median(wasted),
            unit=" %",
            bar=at_most(1.0),
            spread=(100 * min(wasted), 100 * max(wasted)),
        ),
    ]


def _drain(site: Site, log: StatementLog, count: int) -> tuple[float, float, float]:
    """Statements per item, commands per item, share of pops that were wasted."""
    site.table().fill(count)
    site.forget_queues()
    tally, counter = JobTally(), SettledCounter(count)
    servers = connect(site.boxes.resolved.settings)
    counting = replace(servers, queue=CountingQueue(servers.queue, tally))
    log.restart()
    with site.redis() as client:
        client.config_resetstat()
        with inner_worker(site, JobObserver(tally, counter), counting):
            counter.wait()
            commands = redis_commands(client)
        left = sum(int(client.llen(key)) for key in client.scan_iter("*:job_queue"))
    popped = max(tally.pushed - left, tally.useful, 1)
    return len(log.statements()) / count, commands / count, (popped - tally.useful) / popped
