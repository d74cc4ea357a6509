"""The index over (event_key, id): made where a box needs it, missed only there, and never made twice nor taken away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.orm import DeclarativeBase

from boxengine import InboxItem, OutboxItem
from boxengine.adapters.sql.connecting.cursors import cursor_of
from boxengine.adapters.sql.dialects.mysql import MySqlStatements
from boxengine.adapters.sql.dialects.postgresql import PostgresStatements
from boxengine.adapters.sql.making import checks, schema
from boxengine.adapters.sql.shape.tables import reflect
from boxengine.domain.box import Box, BoxType, StrictOrder

PLAIN = Box(name="plain_outbox_item", type=BoxType.OUTBOX, table="plain_outbox_items")
NEEDY = replace(PLAIN, key_index=True)
KEYED = Box(name="keyed_outbox_item", type=BoxType.OUTBOX, table="keyed_outbox_items", key_index=True)


class Base(DeclarativeBase):
    """The application's own."""


class PlainOutboxItem(OutboxItem, Base):
    """As most models are."""

    __tablename__ = "plain_outbox_items"


class KeyedOutboxItem(OutboxItem, Base):
    """Asks for the index."""

    __tablename__ = "keyed_outbox_items"
    __box_key_index__ = True


class KeyedInboxItem(InboxItem, Base):
    """Asks for the index, too."""

    __tablename__ = "keyed_inbox_items"
    __box_key_index__ = True


@pytest.fixture(params=["postgres_url", "mysql_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = create_engine(request.getfixturevalue(request.param))
    yield made
    made.dispose()


def run(engine: Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))


def by_key(engine: Engine, table: str) -> list[str | None]:
    """Names of the indexes that begin with the event key."""
    return [
        index["name"] for index in inspect(engine).get_indexes(table) if index["column_names"] == ["event_key", "id"]
    ]


def drop(engine: Engine, index: str, table: str) -> None:
    run(engine, f"DROP INDEX {index}" + ("" if engine.dialect.name == "postgresql" else f" ON {table}"))


# ── db create, check and ddl ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "order", [StrictOrder.NONE, StrictOrder.BUCKET, StrictOrder.KEY], ids=["loose", "bucket", "key"]
)
def test_a_box_that_does_not_need_it_has_none_and_misses_none(engine: Engine, order: StrictOrder) -> None:
    box = replace(PLAIN, strict_order=order)
    schema.create(engine, [box])
    assert by_key(engine, box.table) == []
    assert checks.check(engine, [box]) == []
    assert not any("(event_key, id)" in statement for statement in schema.ddl(engine.dialect.name, [box]))


@pytest.mark.parametrize("models", [[], [PlainOutboxItem]], ids=["no model", "model that does not ask"])
def test_a_box_that_needs_it_gets_it_with_its_table(engine: Engine, models: list[type]) -> None:
    for _ in range(2):
        schema.create(engine, [NEEDY], models)
        assert by_key(engine, NEEDY.table) == ["ix_plain_outbox_items_key"]
    assert checks.check(engine, [NEEDY], models) == []


@pytest.mark.parametrize("models", [[], [PlainOutboxItem]], ids=["no model", "model that does not ask"])
def test_a_table_that_was_there_before_the_need_is_told_of_and_completed(engine: Engine, models: list[type]) -> None:
    schema.create(engine, [PLAIN], models)
    (finding,) = checks.check(engine, [NEEDY], models)
    assert (finding.box, finding.severity) == (NEEDY.name, "warning")
    assert "table plain_outbox_items has no index over event_key and id" in finding.message
    assert "db create" in finding.message
    for _ in range(2):
        schema.create(engine, [NEEDY], models)
        assert by_key(engine, NEEDY.table) == ["ix_plain_outbox_items_key"]
    assert checks.check(engine, [NEEDY], models) == []


def test_an_index_that_is_not_needed_stays_and_is_no_finding(engine: Engine) -> None:
    schema.create(engine, [NEEDY])
    schema.create(engine, [PLAIN])
    assert checks.check(engine, [PLAIN]) == []
    assert by_key(engine, PLAIN.table) == ["ix_plain_outbox_items_key"]


@pytest.mark.parametrize(("box", "models"), [(NEEDY, []), (KEYED, [KeyedOutboxItem])], ids=["no model", "model"])
def test_one_of_another_name_serves_and_gets_no_twin(engine: Engine, box: Box, models: list[type]) -> None:
    schema.create(engine, [box], models)
    drop(engine, f"ix_{box.table}_key", box.table)
    run(engine, f"CREATE INDEX of_ones_own ON {box.table} (event_key, id)")
    assert checks.check(engine, [box], models) == []
    schema.create(engine, [box], models)
    assert by_key(engine, box.table) == ["of_ones_own"]


def test_one_that_does_not_have_all_rows_does_not_serve(engine: Engine) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("has no partial indexes")
    schema.create(engine, [PLAIN])
    run(engine, f"CREATE INDEX few ON {PLAIN.table} (event_key, id) WHERE status = 0")
    assert len(checks.check(engine, [NEEDY])) == 1
    schema.create(engine, [NEEDY])
    assert sorted(by_key(engine, PLAIN.table), key=str) == ["few", "ix_plain_outbox_items_key"]


@pytest.mark.parametrize(
    ("box", "models"),
    [(NEEDY, []), (NEEDY, [PlainOutboxItem]), (KEYED, [KeyedOutboxItem])],
    ids=["no model", "model that does not ask", "model that asks"],
)
def test_the_sql_of_db_ddl_makes_it_once(engine: Engine, box: Box, models: list[type]) -> None:
    run(engine, *schema.ddl(engine.dialect.name, [box], models))
    assert by_key(engine, box.table) == [f"ix_{box.table}_key"]
    assert checks.check(engine, [box], models) == []


# ── models ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_model_has_it_in_its_metadata_if_it_asks(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    assert by_key(engine, "plain_outbox_items") == []
    assert by_key(engine, "keyed_outbox_items") == ["ix_keyed_outbox_items_key"]
    assert by_key(engine, "keyed_inbox_items") == ["ix_keyed_inbox_items_key"]


def test_a_models_table_under_strict_order_by_key_is_told_of_until_something_leads_to_parked_keys(
    engine: Engine,
) -> None:
    strict = replace(PLAIN, strict_order=StrictOrder.KEY)
    Base.metadata.create_all(engine)
    (finding,) = checks.check(engine, [strict], [PlainOutboxItem])
    assert (finding.severity, "strict_order: key reads the whole table" in finding.message) == ("warning", True)
    run(engine, f"CREATE INDEX of_ones_own ON {PLAIN.table} (event_key, id)")
    assert checks.check(engine, [strict], [PlainOutboxItem]) == []
    drop(engine, "of_ones_own", PLAIN.table)
    schema.create(engine, [strict], [PlainOutboxItem])
    assert checks.check(engine, [strict], [PlainOutboxItem]) == []


# ── what it is for ───────────────────────────────────────────────────────────────────────────────────


class Explaining:
    """A cursor that tells the plan of what it is given."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def execute(self, sql: str, values: Any) -> None:
        self._cursor.execute(f"EXPLAIN {sql}", values)

    def fetchall(self) -> list[tuple[str, int]]:
        return [(str(self._cursor.fetchall()), 0)]


def test_later_items_of_a_key_are_found_by_it(engine: Engine) -> None:
    schema.create(engine, [NEEDY])
    postgres = engine.dialect.name == "postgresql"
    rows = ", ".join(
        f"('00000000-0000-0000-0000-{number:012}', 'k{number % 500}', 0, 2, '', 0)" for number in range(1, 5001)
    )
    run(engine, f"INSERT INTO {NEEDY.table} (uuid, event_key, bucket, status, payload, errors_count) VALUES {rows}")
    run(engine, f"ANALYZE {'' if postgres else 'TABLE '}{NEEDY.table}")
    items: Any = [SimpleNamespace(id=number) for number in range(10, 20)]
    with engine.connect() as connection:
        found, cursor = reflect(connection, NEEDY), cursor_of(connection)
        statements = PostgresStatements(found, idle_timeout_ms=60_000) if postgres else MySqlStatements(found)
        explaining: Any = Explaining(cursor)
        (plan,) = map(str, statements.later_delivered(explaining, items))
    assert f"ix_{NEEDY.table}_key" in plan, plan
    assert plan.count("Scan") == plan.count("Index Scan") + plan.count("Bitmap Heap Scan"), plan
