"""The query behind the oldest pending age: a few rows of each bucket through the pending rows' index, however large the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.base import LOOKED_AT
from boxengine.adapters.sql.dialects.postgresql import PostgresStatements
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType

BUCKETS = 16
BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=BUCKETS)
FILL = f"""
INSERT INTO {BOX.table} (uuid, event_key, bucket, payload, status, created_at)
SELECT gen_random_uuid(), 'k' || n, mod(n, {BUCKETS}), 'x', :status, now() - interval '1 day' + n * interval '1 second'
FROM generate_series(1, 20000) AS n
"""
HISTORIES = {
    "a backlog, never analyzed": [FILL.replace(":status", "0")],
    "a backlog, analyzed": [FILL.replace(":status", "0"), f"ANALYZE {BOX.table}"],
    "delivered after an analysis that saw a backlog": [
        FILL.replace(":status", "0"),
        f"ANALYZE {BOX.table}",
        f"UPDATE {BOX.table} SET status = 2 WHERE id > 20",
    ],
    "delivered, and analyzed when empty": [f"ANALYZE {BOX.table}", FILL.replace(":status", "2")],
}


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    schema.create(engine, [BOX])
    yield engine
    engine.dispose()


class Recorded:
    """A cursor that keeps what it is asked, with its values put in."""

    def __init__(self) -> None:
        self.asked = ""

    def execute(self, statement: str, values: tuple[Any, ...], **_options: Any) -> None:
        self.asked = statement.replace("%%", "%")
        for value in values:
            self.asked = self.asked.replace("%s", f"'{value}'" if isinstance(value, str) else str(value), 1)

    def fetchone(self) -> None:
        return None


@pytest.mark.parametrize("history", HISTORIES)
def test_only_the_first_pending_rows_of_each_bucket_are_looked_at(engine: sa.Engine, history: str) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(f"ALTER TABLE {BOX.table} SET (autovacuum_enabled = false)")
        for statement in HISTORIES[history]:
            connection.exec_driver_sql(statement)
    recorded = Recorded()
    store = SqlStore(engine)
    PostgresStatements(store.table(BOX), idle_timeout_ms=60_000).oldest_pending(recorded, dict.fromkeys(BOX.buckets, 0))
    with engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {recorded.asked}").scalar_one()
    nodes = list(walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))
    scans = [node for node in nodes if "Relation Name" in node]
    assert {node.get("Index Name") for node in scans} == {f"ix_{BOX.table}_pending"}
    assert all(node["Actual Rows"] <= LOOKED_AT for node in scans), "each bucket's scan ends at its first rows"
    store.close()


def test_the_oldest_of_a_backlog_is_found_wherever_it_lies(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(FILL.replace(":status", "2"))
        connection.exec_driver_sql(FILL.replace(":status", "0"))
        connection.exec_driver_sql(f"UPDATE {BOX.table} SET status = 2 WHERE status = 0 AND id <= 30000")
        expected = connection.exec_driver_sql(f"SELECT min(created_at) FROM {BOX.table} WHERE status = 0").scalar_one()
    store = SqlStore(engine)
    assert store.oldest_pending(BOX) == expected
    store.close()


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for inner in node.get("Plans", []):
        yield from walk(inner)
