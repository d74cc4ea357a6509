"""The floor of a drain: select pending rows, call the transport, mark them delivered. psycopg, threads, no ORM.

Threads share the rows in one of two ways. *Skip locked*: every thread takes the first rows that no other has locked. *Own
buckets*: each thread keeps to its own share of the buckets and locks nothing, so a crash or a second copy of the program
would break the order. It shows what the database can do, not what anybody should run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Identifier, Literal

from bench.table import BenchTable

COLUMNS = (
    "id, uuid::text, event_name, event_key, bucket, status, options::text, payload, errors_count, "
    "created_at AT TIME ZONE 'UTC', processed_at"
)
"""The columns of an item, in the form that the driver reads fastest; ``EVENT_KEY`` and ``PAYLOAD`` are positions in it."""
EVENT_KEY, PAYLOAD = 3, 7
THREADS = 4
UNBARRED = "own buckets of 500"
"""Shown for information: the bars were set with a floor that uses batches of 200."""
Send = Callable[[Sequence[Any]], object]
"""Calls the transport with rows."""
Share = tuple[Composed, tuple[Any, ...]]
"""One thread's query for its rows, and its parameters."""


def floors(
    table: BenchTable, send: Send, count: int, *, fill: Callable[[], object] | None = None, threads: int = THREADS
) -> dict[str, Callable[[], float]]:
    """The floor programs of a drain, each returning items per second. All are run; the fastest counts.

    Args:
        fill: creates the rows before each run; by default ``count`` pending ones.
    """

    def program(shares: Sequence[Share]) -> Callable[[], float]:
        def run() -> float:
            (fill or (lambda: table.fill(count)))()
            return drain(table, send, count, shares)

        return run

    return {
        "skip locked": program(skip_locked(table, threads=threads, batch=200)),
        "own buckets": program(own_buckets(table, threads=threads, batch=200)),
        UNBARRED: program(own_buckets(table, threads=threads, batch=500)),
    }


def skip_locked(table: BenchTable, *, threads: int, batch: int) -> list[Share]:
    """Every thread runs the same query."""
    query = SQL("SELECT {} FROM {} WHERE status = 0 ORDER BY bucket, id LIMIT {} FOR UPDATE SKIP LOCKED")
    return [(query.format(SQL(COLUMNS), Identifier(table.name), Literal(batch)), ())] * threads


def own_buckets(table: BenchTable, *, threads: int, batch: int) -> list[Share]:
    """Every thread reads its own buckets, in the order of the index on pending rows."""
    query = SQL("SELECT {} FROM {} WHERE status = 0 AND bucket = ANY(%s) ORDER BY bucket, id LIMIT {}")
    statement = query.format(SQL(COLUMNS), Identifier(table.name), Literal(batch))
    return [(statement, (list(range(number, table.buckets, threads)),)) for number in range(threads)]


def by_id(table: BenchTable, *, threads: int, batch: int) -> list[Share]:
    """Every thread reads its own buckets, in id order, as the reference's index supports it."""
    query = SQL("SELECT {} FROM {} WHERE status = 0 AND bucket = ANY(%s) ORDER BY id LIMIT {}")
    statement = query.format(SQL(COLUMNS), Identifier(table.name), Literal(batch))
    return [(statement, (list(range(number, table.buckets, threads)),)) for number in range(threads)]


def drain(table: BenchTable, send: Send, count: int, shares: Sequence[Share]) -> float:
    """Items per second with one thread per share, from the moment when all are connected to the last commit.

    Raises:
        RuntimeError: rows were left behind.
    """
    update = SQL("UPDATE {} SET status = 2, processed_at = now(), updated_at = now() WHERE id = ANY(%s)").format(
        Identifier(table.name)
    )

    def work(select: Composed, parameters: tuple[Any, ...]) -> None:
        with psycopg.connect(table.dsn) as connection:
            cursor = connection.cursor(binary=True)
            connected.wait()
            while True:
                rows = cursor.execute(select, parameters, prepare=True).fetchall()
                if not rows:
                    return
                send(rows)
                cursor.execute(update, ([row[0] for row in rows],), prepare=True)
                connection.commit()

    connected = threading.Barrier(len(shares) + 1)
    threads = [threading.Thread(target=work, args=share) for share in shares]
    for thread in threads:
        thread.start()
    connected.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if table.pending():
        raise RuntimeError("the floor program left rows behind")
    return count / seconds


def against(
    ours: Callable[[], float], floor_programs: Mapping[str, Callable[[], float]]
) -> dict[str, Callable[[], float]]:
    """The programs of one work, including boxengine's."""
    return {**floor_programs, "boxengine": ours}
