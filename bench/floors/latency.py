"""The floor for the time from commit to transport: one thread listens, reads pending rows, sends them and marks them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier

from bench.floors.drain import COLUMNS
from bench.table import BenchTable
from boxengine.adapters.sql.waking.listen import CHANNEL

_GLANCE = 0.2
"""Seconds between two checks whether to stop."""


@contextmanager
def listener(table: BenchTable, send: Callable[[Sequence[Any]], object]) -> Iterator[None]:
    """Runs until the block ends, and sends each row once."""
    stopping, listening = threading.Event(), threading.Event()
    thread = threading.Thread(target=_listen, args=(table, send, stopping, listening))
    thread.start()
    listening.wait()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _listen(
    table: BenchTable,
    send: Callable[[Sequence[Any]], object],
    stopping: threading.Event,
    listening: threading.Event,
) -> None:
    name = Identifier(table.name)
    select = SQL("SELECT {} FROM {} WHERE status = 0 ORDER BY bucket, id LIMIT 200").format(SQL(COLUMNS), name)
    update = SQL("UPDATE {} SET status = 2, processed_at = now(), updated_at = now() WHERE id = ANY(%s)").format(name)
    with (
        psycopg.connect(table.dsn, autocommit=True) as ears,
        psycopg.connect(table.dsn, autocommit=True) as hands,
    ):
        cursor = hands.cursor(binary=True)
        cursor.execute(select, prepare=True)
        ears.execute(f"LISTEN {CHANNEL}".encode())
        listening.set()
        while not stopping.is_set():
            for _ in ears.notifies(timeout=_GLANCE, stop_after=1):
                while rows := cursor.execute(select, prepare=True).fetchall():
                    send(rows)
                    cursor.execute(update, ([row[0] for row in rows],), prepare=True)
