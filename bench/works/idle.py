"""What an idle worker costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from bench.counting import StatementLog, redis_commands
from bench.report import Line, at_most
from bench.servers import Stand
from bench.worker import OuterWorker

BOXES = ("order_outbox_item", "invoice_outbox_item", "shipment_outbox_item")
CALM_AFTER = 25.0
"""Seconds until an idle worker has settled, because its checks become rarer step by step."""


MANY = tuple(f"box{number}_outbox_item" for number in range(300))


def idle(stand: Stand) -> list[Line]:
    """Three boxes of 256 buckets with nothing in them: CPU, SQL, Redis."""
    return _idle(stand, BOXES, cpu=1.0, statements=2.0)


def idle_many(stand: Stand) -> list[Line]:
    """The same with three hundred boxes."""
    return _idle(stand, MANY, cpu=2.0, statements=10.0)


def _idle(stand: Stand, boxes: Sequence[str], *, cpu: float, statements: float) -> list[Line]:
    """Args:
    cpu: percent of a core at most.
    statements: per second at most.
    """
    cpu_bar, statements_bar = at_most(cpu), at_most(statements)
    seconds = float(stand.scale.pick(60, 10))
    with stand.site(buckets=256, transport={"bench.transports.Batches": {}}, outboxes=boxes) as site:
        site.forget_queues()
        log = StatementLog(site)
        with OuterWorker(site) as worker, site.redis() as client:
            worker.wait_until_started()
            time_passes = threading.Event()  # never set
            time_passes.wait(CALM_AFTER)
            client.config_resetstat()
            log.restart()
            spent, began = worker.cpu_seconds(), time.monotonic()
            time_passes.wait(seconds)
            spent, lasted = worker.cpu_seconds() - spent, time.monotonic() - began
            asked, commands = len(log.statements()), redis_commands(client)
            memory = worker.resident_kib() / 1024
    span = f"over {lasted:.0f} s, of one process"
    return [
        Line(
            work=f"idle, {len(boxes)} boxes x 256 buckets: CPU",
            figure=100 * spent / lasted,
            unit=" %",
            bar=cpu_bar,
            note=span,
        ),
        Line(work="idle: SQL statements", figure=asked / lasted, unit="/s", bar=statements_bar, note=span),
        Line(work="idle: Redis commands", figure=commands / lasted, unit="/s", bar=at_most(5.0), note=span),
        Line(work="idle: memory", figure=memory, unit=" MiB"),
    ]
