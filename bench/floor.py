"""The floor: the least code that selects pending rows in batches of 200, calls the transport and marks them delivered.

psycopg, four threads, the same table and indexes as boxengine. Two ways of sharing the rows out, for neither is always
the faster: rows locked by others are skipped, or each thread keeps to its own quarter of the buckets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from bench.table import BenchTable

BATCH = 200
THREADS = 4
COLUMNS = "id, uuid, event_name, event_key, bucket, options, payload, errors_count, created_at"
Send = Callable[[Sequence[Any]], Sequence[Any]]


def skip_locked(table: BenchTable, send: Send, count: int) -> float:
    """Items per second, every thread taking from the head of the table what no other has locked."""
    select = f"SELECT {COLUMNS} FROM {table.name} WHERE status = 0 ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
    return _run(table, send, count, [(select, ())] * THREADS)


def own_buckets(table: BenchTable, send: Send, count: int, buckets: int) -> float:
    """Items per second, every thread going through its own buckets, one after the other, with no row locks at all."""
    select = (
        f"SELECT {COLUMNS} FROM {table.name} WHERE status = 0 AND bucket = ANY(%s) ORDER BY bucket, id LIMIT {BATCH}"
    )
    shares = [list(range(number, buckets, THREADS)) for number in range(THREADS)]
    return _run(table, send, count, [(select, (share,)) for share in shares])


def _run(table: BenchTable, send: Send, count: int, selects: Sequence[tuple[str, tuple[Any, ...]]]) -> float:
    table.fill(count)
    threads = [threading.Thread(target=_drain, args=(table, send, *select)) for select in selects]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if table.delivered() != count:
        raise RuntimeError("the floor program left rows behind")
    return count / seconds


def _drain(table: BenchTable, send: Send, select: str, parameters: tuple[Any, ...]) -> None:
    update = f"UPDATE {table.name} SET status = 2, processed_at = now(), updated_at = now() WHERE id = ANY(%s)"
    with psycopg.connect(table.dsn) as connection:
        cursor = connection.cursor(binary=True)
        while True:
            rows = cursor.execute(select, parameters).fetchall()
            if not rows:
                return
            send(rows)
            cursor.execute(update, ([row[0] for row in rows],))
            connection.commit()
