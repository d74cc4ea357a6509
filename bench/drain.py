"""Draining a backlog: a real worker against the floor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from bench import floor
from bench.rounds import Line, alternate, compare
from bench.table import BenchTable
from bench.transports import ARRIVALS, Batches, Singles
from boxengine.adapters.sql import schema
from boxengine.app import assembly
from boxengine.app.boxes import Boxes, load
from boxengine.app.servers import Servers, connect
from boxengine.embedded import EmbeddedPostgres, EmbeddedValkey
from boxengine.engine.observation import NullObserver, NullTracer

BOX = "order_outbox_item"
PATIENCE = timedelta(minutes=3)


class Bench:
    """The servers of a run: PostgreSQL with default durability, Valkey, both on loopback."""

    def __init__(self, folder: Path, *, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self._postgres = EmbeddedPostgres(folder / "postgres", durable=True)
        self._valkey = EmbeddedValkey(folder / "valkey")

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._postgres, self._valkey:
            yield

    def configured(self, *, buckets: int, transport: str, middleware: str | None = None) -> Boxes:
        """A configuration of one box over these servers."""
        path = self.folder / "outbox.yml"
        path.write_text(
            f"""
bucket_size: {buckets}
database: {{url: "{self._postgres.url()}"}}
redis: {{url: "{self._valkey.url()}"}}
middlewares: {{item_process: [{middleware or ""}]}}
outbox_items: {{{BOX}: {{transports: {{{transport}: {{}}}}}}}}
"""
        )
        return load(path)

    @contextmanager
    def table(self, boxes: Boxes) -> Iterator[BenchTable]:
        servers = connect(boxes.resolved.settings)
        try:
            schema.create(servers.store.engine, [boxes.box(BOX)])
            yield BenchTable(servers, boxes.box(BOX))
        finally:
            servers.close()


def drain(bench: Bench, *, buckets: int, count: int, bar: float) -> Line:
    """No-op batch transport."""
    boxes = bench.configured(buckets=buckets, transport="bench.transports.Batches")
    with bench.table(boxes) as table:
        send = Batches().call_batch
        figures = alternate(
            {
                "skip locked": lambda: floor.skip_locked(table, send, count),
                "own buckets": lambda: floor.own_buckets(table, send, count, buckets),
                "boxengine": lambda: _worker(boxes, table, count),
            },
            rounds=bench.rounds,
        )
    return compare(
        f"drain {count:,}, batch transport, {buckets} buckets",
        bar,
        [figures["skip locked"], figures["own buckets"]],
        figures["boxengine"],
    )


def drain_singly(bench: Bench, *, count: int, bar: float) -> Line:
    """A transport for single items, inside one item middleware."""
    boxes = bench.configured(buckets=256, transport="bench.transports.Singles", middleware="bench.transports.Around")
    with bench.table(boxes) as table:
        single = Singles()

        def send(rows: object) -> list[None]:
            for row in rows:  # type: ignore[attr-defined]
                single(row, row[6])
            return []

        figures = alternate(
            {
                "skip locked": lambda: floor.skip_locked(table, send, count),
                "own buckets": lambda: floor.own_buckets(table, send, count, 256),
                "boxengine": lambda: _worker(boxes, table, count),
            },
            rounds=bench.rounds,
        )
    return compare(
        f"drain {count:,}, one by one, one middleware",
        bar,
        [figures["skip locked"], figures["own buckets"]],
        figures["boxengine"],
    )


def _worker(boxes: Boxes, table: BenchTable, count: int) -> float:
    """Items per second from the start of a whole worker to its last item recorded."""
    table.fill(count)
    ARRIVALS.expect(count)
    servers: Servers = connect(boxes.resolved.settings)
    worker = assembly.assemble(
        boxes.resolved,
        servers,
        observer=NullObserver(),
        tracer=NullTracer(),
        health=assembly.health(servers),
    )
    began = time.perf_counter()
    worker.start()
    if not ARRIVALS.all_there.wait(PATIENCE.total_seconds()):
        raise RuntimeError("the worker did not deliver everything")
    while table.delivered() < count:
        pass  # the last batches are being committed: milliseconds
    seconds = time.perf_counter() - began
    worker.stop(within=timedelta(seconds=30))
    return count / seconds
