"""Creating items against the same INSERT through SQLAlchemy Core."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, Table, insert

from bench.drain import BOX, Bench
from bench.rounds import Line, alternate, compare
from boxengine.adapters.sql import schema
from boxengine.app.boxes import Boxes
from boxengine.app.servers import connect_store

PAYLOAD = b"x" * 500


def create_one_by_one(bench: Bench, *, count: int, bar: float) -> Line:
    """Each in a transaction of its own."""

    def ours(engine: Engine, boxes: Boxes, _table: Table) -> None:
        for number in range(count):
            with engine.begin() as connection:
                boxes.create_outbox_item(connection, BOX, event_key=number, payload=PAYLOAD)

    def core(engine: Engine, _boxes: Boxes, table: Table) -> None:
        statement = insert(table).returning(table.c.id)
        for number in range(count):
            with engine.begin() as connection:
                connection.execute(statement, _row(number)).scalar_one()

    return _compare(bench, f"create {count:,} one by one", bar, count, ours, core)


def create_batches(bench: Bench, *, count: int, bar: float) -> Line:
    """A thousand to a transaction, ids returned."""

    def ours(engine: Engine, boxes: Boxes, _table: Table) -> None:
        for start in range(0, count, 1000):
            items = [{"event_key": number, "payload": PAYLOAD} for number in range(start, start + 1000)]
            with engine.begin() as connection:
                boxes.create_outbox_batch(connection, BOX, items)

    def core(engine: Engine, _boxes: Boxes, table: Table) -> None:
        statement = insert(table).returning(table.c.id, sort_by_parameter_order=True)
        for start in range(0, count, 1000):
            rows = [_row(number) for number in range(start, start + 1000)]
            with engine.begin() as connection:
                connection.execute(statement, rows).scalars().all()

    return _compare(bench, f"create {count:,} in batches of 1,000", bar, count, ours, core)


def _row(number: int) -> dict[str, Any]:
    return {"uuid": uuid4(), "event_key": str(number), "bucket": number % 16, "payload": PAYLOAD}


def _compare(bench: Bench, work: str, bar: float, count: int, ours: Any, core: Any) -> Line:
    boxes = bench.configured(buckets=16, transport="bench.transports.Batches")
    store = connect_store(boxes.resolved.settings)
    box = boxes.box(BOX)
    table = schema.tables([box])[0]
    schema.create(store.engine, [box])

    def timed(program: Any) -> float:
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f"TRUNCATE {box.table} RESTART IDENTITY")
        began = time.perf_counter()
        program(store.engine, boxes, table)
        return count / (time.perf_counter() - began)

    try:
        figures = alternate({"core": lambda: timed(core), "boxengine": lambda: timed(ours)}, rounds=bench.rounds)
    finally:
        store.close()
    return compare(work, bar, [figures["core"]], figures["boxengine"])
