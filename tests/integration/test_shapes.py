"""What a table looks like is read without a walk through the catalog, however many other tables a server has."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.shape.changes import shapes
from boxengine.domain.box import Box, BoxType

BOXES = [Box(name=f"box{n}", type=BoxType.OUTBOX, table=f"box{n}s") for n in range(2)]


def plan(engine: sa.Engine, explain: str) -> list[Any]:
    """The rows of the plan of what reads the tables' definitions; it must have found them."""
    with engine.connect() as connection:
        default = connection.dialect.default_schema_name
        executed: list[tuple[str, Any]] = []
        sa.event.listen(
            connection, "before_cursor_execute", lambda _c, _cursor, text, values, *_: executed.append((text, values))
        )
        locations = [f"{default}.{box.table}" for box in BOXES]
        assert all(shapes(connection, locations).values())
        [(text, values)] = executed
        return list(connection.exec_driver_sql(f"{explain} {text}", values))


def test_postgresql_finds_the_tables_and_their_columns_by_indexes(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    schema.create(engine, BOXES)
    with engine.begin() as connection:
        for n in range(400):
            connection.exec_driver_sql(f"CREATE TABLE other{n} (a int PRIMARY KEY, b int)")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    walked = {word for row in plan(engine, "EXPLAIN") for word in row[0].split() if "Seq Scan on" in row[0]}
    assert not walked & {"pg_class", "pg_attribute", "pg_index"}
    engine.dispose()


def test_mariadb_opens_tables_of_no_other_database(mysql_url: str) -> None:
    engine = sa.create_engine(mysql_url)
    schema.create(engine, BOXES)
    assert [row for row in plan(engine, "EXPLAIN") if "all databases" in (row.Extra or "")] == []
    engine.dispose()
