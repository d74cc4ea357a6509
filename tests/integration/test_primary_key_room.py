"""Room in the primary key's index for the entry that a delivery adds, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType, Retention

BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items")
HALF = ["fillfactor=50"]


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(postgres_url)
    yield engine
    engine.dispose()


def settings(connection: Connection) -> dict[str, list[str] | None]:
    """Of all primary keys, by the names of their tables."""
    found = connection.execute(
        sa.text(
            "SELECT t.relname, i.reloptions FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid "
            "JOIN pg_class AS t ON t.oid = x.indrelid JOIN pg_namespace AS n ON n.oid = t.relnamespace "
            "WHERE x.indisprimary AND n.nspname !~ '^pg_'"
        )
    )
    return {row.relname: row.reloptions for row in found}


@pytest.mark.parametrize("table", ["order_items", 'Odd "names" %', "o" * 63, "ö" * 31])
def test_half_of_each_page_is_left_for_what_deliveries_add(engine: sa.Engine, table: str) -> None:
    box = replace(BOX, table=table)
    for _ in range(2):
        schema.create(engine, [box])
        with engine.connect() as connection:
            assert settings(connection) == {table: HALF}


def test_rows_that_delivery_deletes_leave_no_second_entry(engine: sa.Engine) -> None:
    schema.create(engine, [replace(BOX, retention=Retention(delivered=timedelta(0)))])
    with engine.connect() as connection:
        assert settings(connection) == {BOX.table: None}


def test_a_table_from_elsewhere_keeps_a_primary_key_of_another_name_as_it_is(engine: sa.Engine) -> None:
    schema.create(engine, [BOX])
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER INDEX {BOX.table}_pkey RENAME TO of_old")
        connection.exec_driver_sql("ALTER INDEX of_old RESET (fillfactor)")
    schema.create(engine, [BOX])
    with engine.connect() as connection:
        assert settings(connection) == {BOX.table: None}


def test_what_is_printed_for_migrations_says_it_too(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        for statement in schema.ddl("postgresql", [BOX]):
            connection.exec_driver_sql(statement.replace("%", "%%"))
        assert settings(connection) == {BOX.table: HALF}
