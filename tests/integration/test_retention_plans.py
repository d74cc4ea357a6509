"""What retention reads of a large table on PostgreSQL: its beginning, or an index of a few rows, never all of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.dialects.base import LOOKED_THROUGH
from boxengine.adapters.sql.dialects.postgresql import PostgresStatements
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.shape.tables import reflect
from boxengine.domain.box import Box, BoxType
from boxengine.domain.item import Status

ROWS = 50_000
LIMIT = 100
BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items")
DELIVERED, GIVEN_UP = [Status.DELIVERED], [Status.FAILED, Status.DISCARDED]
NOW = datetime.now(UTC)


class Explaining:
    """A cursor that runs nothing but asks for the plan, executed and undone."""

    rowcount = 0

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.answer: tuple[Any, ...] | None = None
        self.read = 0
        """Rows that all nodes over the table took and threw away."""

    def execute(self, sql: str, values: Any = ()) -> None:
        text = psycopg.ClientCursor(self._connection).mogrify(sql, values)
        answer = self._connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}".encode()).fetchone()
        self._connection.rollback()
        assert answer is not None
        for node in _nodes(answer[0][0]["Plan"]):
            if node.get("Relation Name") == BOX.table and "Scan" in node["Node Type"]:
                kept = node["Actual Rows"] * node["Actual Loops"]
                self.read += kept + node.get("Rows Removed by Filter", 0) * node["Actual Loops"]

    def fetchone(self) -> Any:
        """What a statement would answer; by default that there is no row."""
        return self.answer


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


@pytest.fixture
def statements(postgres_url: str) -> Iterator[PostgresStatements]:
    """Over a table of delivered rows, one of each second, the last of now."""
    engine = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT")
    schema.create(engine, [BOX])
    with engine.connect() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO {BOX.table} (uuid, event_key, bucket, payload, status, created_at) SELECT gen_random_uuid(), "
            f"'k', 0, 'x', 2, now() - ({ROWS} - n) * interval '1 second' FROM generate_series(1, {ROWS}) AS n"
        )
        connection.exec_driver_sql(f"VACUUM ANALYZE {BOX.table}")
        yield PostgresStatements(reflect(connection, BOX), idle_timeout_ms=60_000)
    engine.dispose()


@pytest.fixture
def cursor(postgres_url: str) -> Iterator[Explaining]:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        yield Explaining(connection)


@pytest.mark.parametrize("statuses", [DELIVERED, GIVEN_UP])
def test_the_oldest_row_is_found_without_a_walk_over_all_that_was_delivered(
    statements: PostgresStatements, cursor: Explaining, statuses: list[int]
) -> None:
    statements.oldest(cursor, statuses)
    assert cursor.read <= 1


@pytest.mark.parametrize("statuses", [DELIVERED, GIVEN_UP])
@pytest.mark.parametrize("ago", [timedelta(seconds=ROWS), timedelta(days=30)])
def test_a_deletion_looks_at_the_beginning_of_the_table_only(
    statements: PostgresStatements, cursor: Explaining, statuses: list[int], ago: timedelta
) -> None:
    start = NOW - ago
    statements.delete(cursor, statuses, start, start + timedelta(seconds=LIMIT // 2), LIMIT)
    assert cursor.read <= (LOOKED_THROUGH + 2) * LIMIT


@pytest.mark.parametrize("after", [0, ROWS // 2])
def test_a_sweep_looks_at_a_part_of_the_table_only(
    statements: PostgresStatements, cursor: Explaining, after: int
) -> None:
    before: dict[int, datetime] = dict.fromkeys([*DELIVERED, *GIVEN_UP], NOW - timedelta(days=30))
    cursor.answer = (0, None)
    statements.sweep(cursor, before, after, LIMIT)
    assert cursor.read <= LOOKED_THROUGH * LIMIT + 2 * LIMIT
