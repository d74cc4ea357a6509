"""The floor of an inbox: the same handler in a session, with a hand-written savepoint around each item."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from bench.table import BenchTable

THREADS = 4
BATCH = 200
Handler = Callable[..., object]


def own_buckets(table: BenchTable, handler: Handler, count: int) -> float:
    """Items per second; each of four threads has its own share of the buckets.

    Raises:
        RuntimeError: rows were left behind.
    """
    engine = create_engine(table.dsn.replace("postgresql://", "postgresql+psycopg://"), pool_size=THREADS)
    shares = [list(range(number, table.buckets, THREADS)) for number in range(THREADS)]
    connected = threading.Barrier(THREADS + 1)
    threads = [
        threading.Thread(target=_drain, args=(engine, table.name, handler, share, connected)) for share in shares
    ]
    for thread in threads:
        thread.start()
    connected.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    engine.dispose()
    if table.pending():
        raise RuntimeError("the floor program left rows behind")
    return count / seconds


def _drain(engine: Engine, table: str, handler: Handler, buckets: list[int], connected: threading.Barrier) -> None:
    select = text(
        f"SELECT id, uuid, event_key, bucket, payload, errors_count, created_at FROM {table} "
        f"WHERE status = 0 AND bucket = ANY(:buckets) ORDER BY bucket, id LIMIT {BATCH} FOR UPDATE"
    )
    update = text(f"UPDATE {table} SET status = 2, processed_at = now(), updated_at = now() WHERE id = ANY(:ids)")
    with engine.connect():
        connected.wait()
    while True:
        with Session(engine) as session, session.begin():
            rows: list[Any] = list(session.execute(select, {"buckets": buckets}))
            if not rows:
                return
            for row in rows:
                with session.begin_nested():
                    handler(row, row.payload, session=session)
            session.expunge_all()
            session.execute(update, {"ids": [row.id for row in rows]})
