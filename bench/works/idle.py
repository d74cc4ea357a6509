"""What a worker costs that has nothing to do."""

from __future__ import annotations

import threading
import time

from bench.counting import StatementLog, redis_commands
from bench.report import Line, at_most
from bench.servers import Stand
from bench.worker import OuterWorker

BOXES = ("order_outbox_item", "invoice_outbox_item", "shipment_outbox_item")
CALM_AFTER = 25.0
"""Seconds until a worker that finds nothing has come to rest: its checks grow rare step by step."""


def idle(stand: Stand) -> list[Line]:
    """Three boxes of 256 buckets with nothing in them: CPU, SQL, Redis."""
    seconds = float(stand.scale.pick(60, 10))
    with stand.site(buckets=256, transport={"bench.transports.Batches": {}}, outboxes=BOXES) as site:
        site.forget_queues()
        log = StatementLog(site)
        with OuterWorker(site) as worker, site.redis() as client:
            worker.wait_until_started()
            time_passes = threading.Event()  # never set
            time_passes.wait(CALM_AFTER)
            client.config_resetstat()
            log.restart()
            cpu, began = worker.cpu_seconds(), time.monotonic()
            time_passes.wait(seconds)
            cpu, lasted = worker.cpu_seconds() - cpu, time.monotonic() - began
            statements, commands = len(log.statements()), redis_commands(client)
            memory = worker.resident_kib() / 1024
    span = f"over {lasted:.0f} s, of one process"
    return [
        Line(
            work="idle, 3 boxes x 256 buckets: CPU", figure=100 * cpu / lasted, unit=" %", bar=at_most(1.0), note=span
        ),
        Line(work="idle: SQL statements", figure=statements / lasted, unit="/s", bar=at_most(2.0), note=span),
        Line(work="idle: Redis commands", figure=commands / lasted, unit="/s", bar=at_most(5.0), note=span),
        Line(work="idle: memory", figure=memory, unit=" MiB"),
    ]
