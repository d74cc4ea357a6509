"""A row by itself goes straight to the driver; nobody can tell by the row, nor by what SQLAlchemy tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import permutations
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import JSON, Engine, NullPool, String, TypeDecorator, create_engine, event, insert, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine import OutboxItem
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.dialects.copying import WORTHWHILE
from boxengine.domain.box import Box, BoxType

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items")
ROW: dict[str, Any] = {"event_key": "k", "bucket": 3, "payload": b"\x00x"}


class Shouted(TypeDecorator[str]):
    """Text that is stored in capitals."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return value.upper() if value is not None else "NOTHING"


class Base(DeclarativeBase):
    """The application's."""


class OrderOutboxItem(OutboxItem, Base):
    """With columns of the application's own, of each kind that needs something done in Python."""

    __tablename__ = "order_outbox_items"

    source: Mapped[str] = mapped_column(String, default="web")
    ticket: Mapped[str] = mapped_column(String, default=lambda: uuid4().hex)
    shouted: Mapped[str | None] = mapped_column(Shouted)
    details: Mapped[Any] = mapped_column(JSON, nullable=True)
    written: Mapped[str] = mapped_column(String, server_default=text("'by the server'"))


def decorated(function: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(function)
    def call(context: Any) -> str:
        return function(context).upper()

    return call


@decorated
def shouted_key(context: Any) -> str:
    return str(context.get_current_parameters()["event_key"])


class Peculiar(OutboxItem, Base):
    """With a default that looks at the other values of the row."""

    __tablename__ = "peculiar_items"

    label: Mapped[str] = mapped_column(
        String, default=lambda context: f"{context.get_current_parameters()['event_key']}!"
    )


class Decorated(OutboxItem, Base):
    """With such a default alone, which the application has decorated."""

    __tablename__ = "decorated_items"

    shouted: Mapped[str] = mapped_column(String, default=shouted_key)


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    engine = create_engine(postgres_url, poolclass=NullPool, json_serializer=lambda value: f"[1, {len(value or ())}]")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def read(engine: Engine, table: str = "order_outbox_items") -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(f"SELECT * FROM {table} ORDER BY id")).mappings()]


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"options": {"headers": {"x": "ü"}}, "event_name": "created"},
        {"options": None, "shouted": None, "details": None},
        {"shouted": "loud", "details": {"a": 1}, "source": "app", "ticket": "7"},
    ],
)
def test_the_row_is_what_an_insert_through_core_would_make(engine: Engine, others: dict[str, Any]) -> None:
    given = {**ROW, "uuid": uuid4(), **others}
    rows = SqlRows(BOX, OrderOutboxItem, notify=True)
    with engine.begin() as connection:
        (ours,) = rows.insert(connection, [dict(given)]).ids
        connection.execute(insert(OrderOutboxItem), given)
    found = read(engine)
    assert found[0]["id"] == ours
    varying = {"id"} if "ticket" in others else {"id", "ticket"}
    assert [{k: v for k, v in row.items() if k not in varying} for row in found[:1]] == [
        {k: v for k, v in row.items() if k not in varying} for row in found[1:]
    ]
    assert len({row["ticket"] for row in found}) == (1 if "ticket" in others else 2)


def test_each_row_has_a_uuid_of_its_own(engine: Engine) -> None:
    rows = SqlRows(BOX, OrderOutboxItem)
    with engine.begin() as connection:
        for _ in range(3):
            rows.insert(connection, [dict(ROW)])
    uuids = {row["uuid"] for row in read(engine)}
    assert len(uuids) == 3
    assert all(isinstance(each, UUID) and each.version == 4 for each in uuids)


@pytest.mark.parametrize("count", [1, WORTHWHILE])
def test_a_default_that_looks_at_the_row_is_left_to_sqlalchemy(engine: Engine, count: int) -> None:
    box = Box(name="peculiar", type=BoxType.OUTBOX, table="peculiar_items")
    with engine.begin() as connection:
        SqlRows(box, Peculiar).insert(connection, [{**ROW, "event_key": f"k{number}"} for number in range(count)])
    assert [row["label"] for row in read(engine, "peculiar_items")] == [f"k{number}!" for number in range(count)]


@pytest.mark.parametrize("count", [1, WORTHWHILE])
def test_so_is_one_that_the_application_has_decorated(engine: Engine, count: int) -> None:
    box = Box(name="decorated", type=BoxType.OUTBOX, table="decorated_items")
    with engine.begin() as connection:
        SqlRows(box, Decorated).insert(connection, [{**ROW, "event_key": f"k{number}"} for number in range(count)])
    assert [row["shouted"] for row in read(engine, "decorated_items")] == [f"K{number}" for number in range(count)]


@pytest.mark.parametrize("count", [1, WORTHWHILE])
def test_rows_go_to_the_schema_that_the_application_put_in_place(engine: Engine, count: int) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant"))
        connection.execute(text("CREATE TABLE tenant.order_outbox_items (LIKE order_outbox_items INCLUDING ALL)"))
    rows = SqlRows(BOX, OrderOutboxItem)
    with engine.begin() as connection:
        rows.insert(connection, [dict(ROW)])  # What is known of the statement must not be used for the tenant.
    with engine.execution_options(schema_translate_map={None: "tenant"}).begin() as connection:
        rows.insert(connection, [dict(ROW) for _ in range(count)])
    assert (len(read(engine)), len(read(engine, "tenant.order_outbox_items"))) == (1, count)


def test_the_applications_hooks_see_the_statement_with_its_values(engine: Engine) -> None:
    seen: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        seen.append((statement, parameters))

    with Session(engine) as session, session.begin():
        SqlRows(BOX, OrderOutboxItem).insert(session, [dict(ROW)])
    ((statement, parameters),) = [each for each in seen if each[0].startswith("INSERT")]
    assert "order_outbox_items" in statement
    assert (parameters["event_key"], parameters["bucket"]) == ("k", 3)


def test_a_violated_constraint_is_the_error_that_sqlalchemy_would_raise(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE order_outbox_items ADD CHECK (bucket < 3)"))
    with pytest.raises(IntegrityError, match="violates check constraint"), engine.begin() as connection:
        SqlRows(BOX, OrderOutboxItem).insert(connection, [dict(ROW)])
    assert read(engine) == []


def test_rows_of_very_many_shapes_all_arrive(engine: Engine) -> None:
    given = {**ROW, "event_name": "created", "source": "app"}
    rows = SqlRows(BOX, OrderOutboxItem)
    shapes = list(permutations(given))
    with engine.begin() as connection:
        for keys in shapes:
            rows.insert(connection, [{key: given[key] for key in keys}])
    assert {(row["event_key"], row["event_name"], row["source"]) for row in read(engine)} == {("k", "created", "app")}
    assert len(read(engine)) == len(shapes) == 120
