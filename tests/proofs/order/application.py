"""``python -m tests.proofs.order.application CONFIG URL --order counter|snapshot --threads N --refused SHARE``: writers until
they are killed.

Each thread is one writer: transactions of random length, of one part or several, now and then rolled back. A part has a row in
``ledger``, written in its transaction before its items, so what was committed can be told without boxengine's tables.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping

import psycopg
from sqlalchemy import Connection, Engine, NullPool, create_engine, text

from boxengine.app.boxes import Boxes, load
from tests.proofs.order.judge import Part

KEYS = 100
BOX = "proof_outbox_item"
WRITER = "proof writer"
"""The name of the writers' connections."""
TABLES = """
CREATE TABLE locks (key int PRIMARY KEY, counter bigint NOT NULL DEFAULT 0) WITH (fillfactor = 20);
CREATE TABLE ledger (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key int NOT NULL,
    items int NOT NULL,
    first bigint NOT NULL,
    transaction xid8 NOT NULL DEFAULT pg_current_xact_id(),
    snapshot text NOT NULL DEFAULT pg_current_snapshot()::text
);
"""
SIZES = (1, 1, 2, 5, 10, 40)
"""Items of a part."""
ROLLED_BACK = 0.05
"""Share of the transactions."""
_LENGTHS = ((0.75, 0.002), (0.95, 0.02), (0.995, 0.1), (1.0, 1.0))
"""Up to which share a pause has which mean, in seconds."""
_MOST_PAUSE = 5.0
_COUNT = text("UPDATE locks SET counter = counter + :items WHERE key = :key RETURNING counter - :items + 1")
_NOTE = text("INSERT INTO ledger (key, items, first) VALUES (:key, :items, :first) RETURNING number")


class Writer:
    """One thread's transactions."""

    def __init__(self, boxes: Boxes, *, refused: float, seed: str) -> None:
        """Args:
        refused: share of the items that the receiver refuses once.
        """
        self._boxes = boxes
        self._refused = refused
        self._random = random.Random(seed)
        self._never = threading.Event()

    def transact(self, connection: Connection, write: Callable[[Writer, Connection], None]) -> None:
        with connection.begin() as transaction:
            write(self, connection)
            if self._random.random() < ROLLED_BACK:
                transaction.rollback()

    def under_one_lock(self, connection: Connection) -> None:
        """Parts of one key, whose row stays locked until the commit."""
        key = self._random.randrange(KEYS)
        for items in self._parts():
            first = connection.execute(_COUNT, {"key": key, "items": items}).scalar_one()
            self._write(connection, key, items, first)

    def without_locks(self, connection: Connection) -> None:
        """Parts of random keys, each of which others write to at the same time."""
        for items in self._parts():
            self._write(connection, self._random.randrange(KEYS), items, 0)

    def _parts(self) -> Iterable[int]:
        """The items of each, with a pause after it."""
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            yield self._random.choice(SIZES)
            luck = self._random.random()
            mean = next(mean for share, mean in _LENGTHS if luck <= share)
            self._never.wait(min(_MOST_PAUSE, self._random.expovariate(1 / mean)))

    def _write(self, connection: Connection, key: int, items: int, first: int) -> None:
        number = connection.execute(_NOTE, {"key": key, "items": items, "first": first}).scalar_one()
        self._boxes.create_outbox_batch(
            connection,
            BOX,
            [{"event_key": str(key), "payload": self._payload(number, place)} for place in range(items)],
        )

    def _payload(self, number: int, place: int) -> bytes:
        return b"%d %d %d " % (number, place, self._random.random() < self._refused) + b"x" * 60


WAYS: Mapping[str, Callable[[Writer, Connection], None]] = {
    "counter": Writer.under_one_lock,
    "snapshot": Writer.without_locks,
}
"""By what the deliveries are judged, how is written."""


def make_tables(connection: psycopg.Connection) -> None:
    """The application's own."""
    connection.execute(TABLES.encode())
    connection.execute("INSERT INTO locks SELECT generate_series(0, %s - 1)", (KEYS,))


class Ledger:
    """What was committed, read from outside."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def parts(self, numbers: Iterable[int]) -> dict[int, Part]:
        """Those of these numbers that were committed."""
        rows = self._connection.execute(
            "SELECT number, key, items, first, transaction::text::bigint, snapshot FROM ledger WHERE number = ANY(%s)",
            (list(set(numbers)),),
        )
        return {row[0]: Part(*row) for row in rows}

    def begun(self) -> int:
        """How many parts there are, with those that are rolled back or under way."""
        row = self._connection.execute("SELECT last_value FROM ledger_number_seq").fetchone()
        return int(row[0]) if row else 0

    def has(self, items: int) -> bool:
        """Whether so many were committed. They are counted only once there are about as many, for that takes a while."""
        if self.begun() * sum(SIZES) / len(SIZES) < items:
            return False
        row = self._connection.execute("SELECT coalesce(sum(items), 0) >= %s FROM ledger", (items,)).fetchone()
        return bool(row and row[0])

    def writers(self) -> int:
        """How many writers are connected."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"
        row = self._connection.execute(query, (WRITER,)).fetchone()
        return int(row[0]) if row else 0

    def all(self) -> Iterable[tuple[int, int]]:
        """Number and items of each part."""
        with self._connection.transaction(), self._connection.cursor(name="parts") as cursor:
            cursor.execute("SELECT number, items FROM ledger ORDER BY number")
            yield from cursor


def main() -> None:
    """Starts the writers. Whoever started this process ends it, by SIGKILL: there is no other way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config")
    parser.add_argument("url")
    parser.add_argument("--order", choices=list(WAYS), required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--refused", type=float, required=True)
    parser.add_argument("--seed", required=True)
    asked = parser.parse_args()
    boxes = load(asked.config)
    engine = create_engine(asked.url, poolclass=NullPool, connect_args={"application_name": WRITER})
    for number in range(asked.threads):
        writer = Writer(boxes, refused=asked.refused, seed=f"{asked.seed} {number}")
        threading.Thread(target=_write_on, args=(engine, writer, WAYS[asked.order]), daemon=True).start()
    sys.stdin.read()  # until whoever started this process is gone


def _write_on(engine: Engine, writer: Writer, write: Callable[[Writer, Connection], None]) -> None:
    try:
        with engine.connect() as connection:
            while True:
                writer.transact(connection, write)
    except BaseException:
        # A thread that ended alone would leave fewer writers than were asked for.
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
