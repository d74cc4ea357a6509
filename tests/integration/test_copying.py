"""Large batches go through COPY; nobody can tell by the rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import JSON, DateTime, Engine, NullPool, create_engine, event, select, text
from sqlalchemy.exc import DataError, IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from boxengine import OutboxItem
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.dialects.copying import WORTHWHILE
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType
from boxengine.errors import InvalidItem

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items")
MANY = WORTHWHILE * 4
RAILS = """
    CREATE TABLE order_outbox_items (
        id bigserial PRIMARY KEY, uuid uuid NOT NULL, event_key varchar NOT NULL, bucket integer NOT NULL,
        status integer NOT NULL DEFAULT 0, errors_count integer NOT NULL DEFAULT 0, options jsonb,
        proto_payload bytea NOT NULL, processed_at timestamp(6),
        created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL
    )
"""


class Desk:
    """One table, and which statements filled it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.inserts: list[str] = []
        event.listen(engine, "before_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith("INSERT"):
            self.inserts.append(statement)

    def insert(self, rows: list[dict[str, Any]]) -> list[int]:
        with self.engine.begin() as connection:
            return list(SqlRows(BOX).insert(connection, rows).ids)

    def read(self, columns: str = "*") -> list[dict[str, Any]]:
        with self.engine.connect() as connection:
            found = connection.execute(text(f"SELECT {columns} FROM order_outbox_items ORDER BY id"))
            return [dict(row) for row in found.mappings()]


@pytest.fixture
def desk(postgres_url: str) -> Iterator[Desk]:
    engine = create_engine(postgres_url, poolclass=NullPool)
    schema.create(engine, [BOX])
    yield Desk(engine)
    engine.dispose()


def rows(count: int = MANY, **others: Any) -> list[dict[str, Any]]:
    return [{"event_key": f"k{n}", "bucket": n % 16, "payload": b"\x00%d" % n, **others} for n in range(count)]


def test_a_large_batch_is_copied_and_a_small_one_inserted(desk: Desk) -> None:
    desk.insert(rows(WORTHWHILE - 1))
    assert desk.inserts
    desk.inserts.clear()
    desk.insert(rows(WORTHWHILE))
    assert not desk.inserts


def test_the_sequence_is_looked_up_once_for_a_batch(desk: Desk) -> None:
    plans = list[str]()

    def explain(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "nextval" in statement:
            cursor.execute(f"EXPLAIN VERBOSE {statement}", parameters)
            plans.append("\n".join(line for (line,) in cursor.fetchall()))

    event.listen(desk.engine, "before_cursor_execute", explain)
    desk.insert(rows())
    assert len(plans) == 1
    drawing, _, once = plans[0].partition("InitPlan")
    assert "pg_get_serial_sequence" in once
    assert "pg_get_serial_sequence" not in drawing


def test_ids_come_back_in_the_order_given(desk: Desk) -> None:
    ids = desk.insert(rows())
    assert ids == sorted(set(ids))
    assert [(row["id"], row["event_key"]) for row in desk.read()] == [(id_, f"k{n}") for n, id_ in enumerate(ids)]


def test_a_copied_row_is_like_an_inserted_one(desk: Desk) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    given: dict[str, Any] = {
        "options": {"headers": {"x": "ü"}},
        "event_name": "created",
        "available_at": later,
        "uuid": uuid4(),
    }
    (inserted,) = desk.insert(rows(1, **given))
    copied = desk.insert(rows(**given))
    found = {row["id"]: row for row in desk.read()}
    ours, theirs = found[copied[0]], found[inserted]
    varying = ("id", "created_at", "updated_at")
    assert {k: v for k, v in ours.items() if k not in varying} == {k: v for k, v in theirs.items() if k not in varying}
    assert timedelta(0) <= ours["created_at"] - theirs["created_at"] < timedelta(minutes=1)


def test_what_is_not_given_takes_its_default(desk: Desk) -> None:
    desk.insert(rows())
    found = desk.read()
    assert len({row["uuid"] for row in found}) == MANY
    assert {(row["status"], row["errors_count"], row["options"], row["available_at"]) for row in found} == {
        (0, 0, None, None)
    }
    assert all(row["created_at"] == row["updated_at"] for row in found)


def test_items_of_different_shapes_keep_their_order(desk: Desk) -> None:
    batch = [*rows(), *rows(MANY, event_name="x"), *rows(3), *rows(MANY)]
    ids = desk.insert(batch)
    assert ids == sorted(set(ids))
    assert [row["event_key"] for row in desk.read("event_key")] == [row["event_key"] for row in batch]


def test_they_roll_back_with_the_callers_transaction(desk: Desk) -> None:
    with Session(desk.engine) as session:
        SqlRows(BOX).insert(session, rows())
        session.rollback()
    assert desk.read() == []


def test_the_callers_transaction_sees_them_at_once(desk: Desk) -> None:
    with Session(desk.engine) as session, session.begin():
        ids = SqlRows(BOX).insert(session, rows()).ids
        assert list(session.execute(select(text("id FROM order_outbox_items ORDER BY id"))).scalars()) == ids


def test_a_violated_constraint_is_the_error_that_sqlalchemy_would_raise(desk: Desk) -> None:
    with desk.engine.begin() as connection:
        connection.execute(text("ALTER TABLE order_outbox_items ADD CHECK (bucket < 3)"))
    with pytest.raises(IntegrityError, match="violates check constraint"):
        desk.insert(rows())
    assert desk.read() == []


def test_a_moment_without_a_zone_in_an_own_column_means_what_it_means_to_insert(desk: Desk) -> None:
    class Base(DeclarativeBase): ...

    class DatedOutboxItem(OutboxItem, Base):
        __tablename__ = BOX.table
        ordered_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    naive = datetime(2026, 6, 1, 12)  # noqa: DTZ001 - it is what is tested
    with desk.engine.begin() as connection:
        connection.execute(text("ALTER TABLE order_outbox_items ADD ordered_at timestamptz"))
        for count in (1, MANY):
            SqlRows(BOX, DatedOutboxItem).insert(connection, rows(count, ordered_at=naive))
    assert len({row["ordered_at"] for row in desk.read("ordered_at")}) == 1


class Base(DeclarativeBase): ...


class ShopOutboxItem(OutboxItem, Base):
    """Has columns of its own, of the types that COPY takes."""

    __tablename__ = BOX.table

    tenant: Mapped[str | None]
    number: Mapped[int | None]
    order: Mapped[UUID | None]
    ordered_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    details: Mapped[Any | None] = mapped_column(JSON)


@pytest.fixture
def shop(postgres_url: str) -> Iterator[Desk]:
    engine = create_engine(postgres_url, poolclass=NullPool)
    Base.metadata.create_all(engine)
    yield Desk(engine)
    engine.dispose()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("uuid", str(UUID(int=2))),
        ("event_name", Decimal("1.5")),
        ("tenant", 7),
        ("tenant", UUID(int=1)),
        ("number", "7"),
        ("number", Decimal(7)),
        ("order", str(UUID(int=1))),
        ("ordered_at", "2026-06-01T12:00+00:00"),
        ("details", {"total": 7}),
    ],
    ids=str,
)
def test_a_value_that_the_server_converts_is_the_same_in_a_large_batch(shop: Desk, column: str, value: object) -> None:
    with Session(shop.engine) as session, session.begin():
        for count in (1, MANY):
            SqlRows(BOX, ShopOutboxItem).insert(session, rows(count, **{column: value}))
    stored = [str(row[column]) for row in shop.read(f'"{column}"')]
    assert stored == stored[:1] * (MANY + 1)


def test_a_number_that_its_column_cannot_hold_is_not_cut_off(shop: Desk) -> None:
    with shop.engine.begin() as connection, pytest.raises(DataError, match="out of range"):
        SqlRows(BOX, ShopOutboxItem).insert(connection, rows(number=2**40 + 7))
    with shop.engine.begin() as connection:
        SqlRows(BOX, ShopOutboxItem).insert(connection, rows(number=2**31 - 1))
    assert {row["number"] for row in shop.read("number")} == {2**31 - 1}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("options", {"headers": {"total": Decimal("1.5")}}),
        ("details", {"total": Decimal("1.5")}),
        ("tenant", "a\0b"),
        ("tenant", "\ud800"),
        ("payload", "no bytes"),
    ],
    ids=repr,
)
def test_what_no_row_can_hold_leaves_the_transaction_as_it_was(shop: Desk, column: str, value: object) -> None:
    with shop.engine.begin() as connection:
        many = [*rows(), *rows(1, **{column: value})]
        many = [{column: None, **row} for row in many]
        with pytest.raises((InvalidItem, TypeError, DataError, UnicodeError)):
            SqlRows(BOX, ShopOutboxItem).insert(connection, many)
        kept = SqlRows(BOX, ShopOutboxItem).insert(connection, rows()).ids
    assert [row["id"] for row in shop.read("id")] == kept


def test_a_table_of_rails_takes_them_too(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text(RAILS))
    desk = Desk(engine)
    (inserted,) = desk.insert(rows(1))
    desk.inserts.clear()
    ids = desk.insert(rows())
    found = {row["id"]: row for row in desk.read()}
    assert [bytes(found[id_]["proto_payload"]) for id_ in ids] == [row["payload"] for row in rows()]
    assert abs(found[ids[0]]["created_at"] - found[inserted]["created_at"]) < timedelta(minutes=1)
    engine.dispose()


def test_a_column_of_an_unusual_type_is_left_to_insert(desk: Desk) -> None:
    with desk.engine.begin() as connection:
        connection.execute(text("ALTER TABLE order_outbox_items ALTER COLUMN bucket TYPE numeric"))
    ids = desk.insert(rows())
    assert len(ids) == MANY
    assert desk.inserts


def test_an_account_that_may_only_insert_needs_no_right_to_the_sequence(desk: Desk) -> None:
    role = f"writer_{uuid4().hex[:8]}"
    with desk.engine.begin() as connection:
        connection.execute(text("ALTER TABLE order_outbox_items ALTER COLUMN id DROP DEFAULT"))
        connection.execute(text("DROP SEQUENCE IF EXISTS order_outbox_items_id_seq"))
        connection.execute(text("ALTER TABLE order_outbox_items ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY"))
        connection.execute(text(f"CREATE ROLE {role}"))
        connection.execute(text(f"GRANT INSERT, SELECT (id) ON order_outbox_items TO {role}"))
    try:
        with desk.engine.begin() as connection:
            connection.execute(text(f"SET LOCAL ROLE {role}"))
            ids = SqlRows(BOX).insert(connection, rows()).ids
        assert [row["id"] for row in desk.read("id")] == ids
        assert desk.inserts
    finally:
        with desk.engine.begin() as connection:
            connection.execute(text(f"DROP OWNED BY {role}"))
            connection.execute(text(f"DROP ROLE {role}"))


async def _insert_async(url: str) -> list[int]:
    engine = create_async_engine(url)
    async with AsyncSession(engine) as session, session.begin():
        ids = await session.run_sync(lambda sync: SqlRows(BOX).insert(sync, rows()).ids)
    await engine.dispose()
    return list(ids)


def test_beneath_an_async_session_they_are_inserted(desk: Desk, postgres_url: str) -> None:
    import asyncio

    ids = asyncio.run(_insert_async(postgres_url))
    assert [row["id"] for row in desk.read("id")] == ids


def test_under_another_search_path_ids_come_from_that_schemas_own_sequence(postgres_url: str) -> None:
    engine = create_engine(postgres_url)
    schema.create(engine, [BOX])
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA tenant")
        connection.exec_driver_sql("SET LOCAL search_path TO tenant")
        schema.tables([BOX])[0].create(connection, checkfirst=False)
    rows = SqlRows(BOX)
    many = [{"event_key": "k", "bucket": 0, "payload": b""} for _ in range(MANY)]
    with engine.begin() as connection:
        assert max(rows.insert(connection, many).ids) == MANY
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL search_path TO tenant")
        assert max(rows.insert(connection, many).ids) == MANY
        assert rows.insert(connection, many[:1]).ids == [MANY + 1]
    engine.dispose()


def test_after_a_column_has_changed_its_type_only_the_batch_that_meets_it_fails(desk: Desk) -> None:
    written = SqlRows(BOX)  # an application keeps it for as long as it runs
    with desk.engine.begin() as connection:
        written.insert(connection, rows())
        connection.execute(text("ALTER TABLE order_outbox_items ALTER COLUMN bucket TYPE bigint"))
    with pytest.raises(OperationalError), desk.engine.begin() as connection:
        written.insert(connection, rows())
    with desk.engine.begin() as connection:
        written.insert(connection, rows())
    assert len(desk.read()) == 2 * MANY
    assert not desk.inserts


def test_under_row_level_security_batches_are_inserted(desk: Desk) -> None:
    with desk.engine.begin() as connection:
        role = f"tenant_{uuid4().hex}"
        for statement in (
            f"CREATE ROLE {role}",
            f"GRANT ALL ON order_outbox_items, order_outbox_items_id_seq TO {role}",
            "ALTER TABLE order_outbox_items ENABLE ROW LEVEL SECURITY",
            f"CREATE POLICY own ON order_outbox_items TO {role} USING (bucket < 8) WITH CHECK (bucket < 8)",
            f"SET LOCAL ROLE {role}",
        ):
            connection.execute(text(statement))
        mine = [row for row in rows() if row["bucket"] < 8]
        assert len(SqlRows(BOX).insert(connection, mine).ids) == len(mine) >= WORTHWHILE
    assert len(desk.read()) == len(mine)
    with desk.engine.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))


def test_a_rule_of_the_table_is_obeyed(desk: Desk) -> None:
    with desk.engine.begin() as connection:
        connection.execute(text("CREATE TABLE seen (event_key text)"))
        connection.execute(
            text("CREATE RULE see AS ON INSERT TO order_outbox_items DO ALSO INSERT INTO seen VALUES (new.event_key)")
        )
    desk.insert(rows())
    with desk.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM seen")).scalar_one() == MANY
