"""The floor of creating items: the same INSERT through SQLAlchemy Core, and COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, Table, insert

from bench.table import PAYLOAD

BODY = b"x" * PAYLOAD
BATCH = 1_000


def core_one_by_one(engine: Engine, table: Table, count: int, *, buckets: int) -> None:
    """Each row in its own transaction; its id is read."""
    statement = insert(table).returning(table.c.id)
    for number in range(count):
        with engine.begin() as connection:
            connection.execute(statement, _row(number, buckets)).scalar_one()


def insertmanyvalues(engine: Engine, table: Table, count: int, *, buckets: int) -> None:
    """A thousand rows per transaction; ids are read in the order given."""
    statement = insert(table).returning(table.c.id, sort_by_parameter_order=True)
    for batch in batches(count):
        rows = [_row(number, buckets) for number in batch]
        with engine.begin() as connection:
            connection.execute(statement, rows).scalars().all()


def copy(engine: Engine, table: Table, count: int, *, buckets: int) -> None:
    """A thousand rows per transaction through COPY. It returns no ids, so they are drawn from the sequence first."""
    draw = f"SELECT nextval(pg_get_serial_sequence('{table.name}', 'id')) FROM generate_series(1, %s)"
    target = f"COPY {table.name} (id, uuid, event_key, bucket, payload) FROM STDIN (FORMAT binary)"
    for batch in batches(count):
        with engine.begin() as connection:
            driver: Any = connection.connection.driver_connection
            with driver.cursor(binary=True) as cursor:
                ids = [row[0] for row in cursor.execute(draw, (len(batch),))]
                with cursor.copy(target) as stream:
                    stream.set_types(["int8", "uuid", "varchar", "int4", "bytea"])
                    for row_id, number in zip(ids, batch, strict=True):
                        stream.write_row((row_id, uuid4(), str(number), number % buckets, BODY))


def batches(count: int) -> Sequence[range]:
    """The numbers of the rows, a thousand at a time."""
    return [range(start, min(start + BATCH, count)) for start in range(0, count, BATCH)]


def _row(number: int, buckets: int) -> dict[str, Any]:
    return {"uuid": uuid4(), "event_key": str(number), "bucket": number % buckets, "payload": BODY}
