"""Gapless numbers per event key, given as items are created, on PostgreSQL and on MariaDB."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import DeclarativeBase, Session

from boxengine import OutboxItem, SequencedItem
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.creating.known_rows import KnownRows, Mark
from boxengine.adapters.sql.creating.numbered import NumberedRows
from boxengine.adapters.sql.making import checks, schema
from boxengine.domain.box import Box, BoxType
from boxengine.errors import InvalidItem, SchemaMismatch, StoreUnavailable

OUTBOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", sequence=True)
INBOX = Box(name="order_inbox_item", type=BoxType.INBOX, table="order_inbox_items", sequence=True)
PLAIN = Box(name="plain_outbox_item", type=BoxType.OUTBOX, table="plain_outbox_items")
PATIENCE = 60


class Base(DeclarativeBase):
    """The application's own."""


class OrderOutboxItem(SequencedItem, OutboxItem, Base):
    """A model with numbers."""

    __tablename__ = "order_outbox_items"


class PlainOutboxItem(OutboxItem, Base):
    """A model without."""

    __tablename__ = "plain_outbox_items"


@pytest.fixture(params=["postgres_url", "mysql_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = create_engine(request.getfixturevalue(request.param), pool_size=10)
    schema.create(made, [OUTBOX, INBOX, PLAIN])
    yield made
    made.dispose()


def row(key: str, **more: Any) -> dict[str, Any]:
    return {"event_key": key, "bucket": 1, "payload": b"x", **more}


def create(engine: Engine, *rows: dict[str, Any], box: Box = OUTBOX) -> list[int]:
    with engine.begin() as connection:
        return NumberedRows(box).insert(connection, rows).ids


def numbers(engine: Engine, box: Box = OUTBOX) -> dict[str, list[int | None]]:
    """By key, in id order."""
    found: dict[str, list[int | None]] = {}
    with engine.connect() as connection:
        for key, seq in connection.execute(text(f"SELECT event_key, seq FROM {box.table} ORDER BY id")):
            found.setdefault(key, []).append(seq)
    return found


def gapless(count: int) -> list[int | None]:
    return list(range(1, count + 1))


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────


def test_each_key_is_counted_by_itself_item_by_item_and_in_batches(engine: Engine) -> None:
    create(engine, row("a"))
    create(engine, row("b"))
    ids = create(engine, row("b"), row("a"), row("c"), row("b"))
    assert ids == sorted(ids)
    create(engine, row("a"))
    assert numbers(engine) == {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1]}


def test_a_large_batch_of_many_keys_is_numbered_in_the_order_given(engine: Engine) -> None:
    keys = [str(number * 7919 % 1300) for number in range(3000)]
    create(engine, *map(row, keys))
    create(engine, *map(row, keys))
    found = numbers(engine)
    assert found == {key: gapless(2 * keys.count(key)) for key in dict.fromkeys(keys)}


def test_what_is_rolled_back_leaves_no_gap(engine: Engine) -> None:
    create(engine, row("a"))
    with engine.connect() as connection:
        NumberedRows(OUTBOX).insert(connection, [row("a"), row("b")])
        connection.rollback()
    with engine.begin() as connection:
        rows = NumberedRows(OUTBOX)
        savepoint = connection.begin_nested()
        rows.insert(connection, [row("a")])
        savepoint.rollback()
        rows.insert(connection, [row("a"), row("b")])
    assert numbers(engine) == {"a": [1, 2], "b": [1]}


def test_keys_that_differ_in_case_or_in_spaces_at_their_end_are_counted_apart(engine: Engine) -> None:
    keys = ["a", "A", "a ", "ä", "\N{PILE OF POO}", "a'b", "%s"]
    create(engine, *map(row, keys), *map(row, keys))
    assert numbers(engine) == {key: [1, 2] for key in keys}


def test_a_key_that_the_table_stores_as_a_number_is_counted_too(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(
            text(
                "ALTER TABLE order_outbox_items ALTER COLUMN event_key TYPE bigint USING event_key::bigint"
                if engine.dialect.name == "postgresql"
                else "ALTER TABLE order_outbox_items MODIFY event_key bigint NOT NULL"
            )
        )
    create(engine, row("7"), row("8"), row("7"))
    assert list(numbers(engine).values()) == [[1, 2], [1]]


def test_a_key_must_fit_the_counters_too_and_their_column_can_be_widened(postgres_url: str) -> None:
    # MySQL's counters keep up to 1,020 bytes.
    engine = create_engine(postgres_url)
    schema.create(engine, [OUTBOX])
    wider = "ALTER COLUMN event_key TYPE varchar(400)"
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {OUTBOX.table} {wider}"))
    rows = NumberedRows(OUTBOX)
    with engine.begin() as connection:
        with pytest.raises(InvalidItem, match="event_key has 300 characters; its column takes 255 at most"):
            rows.insert(connection, [row("k" * 300)])
        connection.execute(text(f"ALTER TABLE {OUTBOX.table}_seqs {wider}"))
        rows.insert(connection, [row("k" * 300)])
    assert numbers(engine) == {"k" * 300: [1]}
    engine.dispose()


def test_a_caller_cannot_give_a_number(engine: Engine) -> None:
    assert "seq" not in NumberedRows(OUTBOX).columns
    assert "seq" not in SqlRows(PLAIN).columns


# ── items that are there already ─────────────────────────────────────────────────────────────────────


def test_an_item_that_is_there_already_takes_no_number(engine: Engine) -> None:
    first, second = create(engine, row("a", dedup_key="x"), row("a", dedup_key="y"))
    ids = create(engine, row("a", dedup_key="y"), row("a"), row("a", dedup_key="z"), row("a", dedup_key="z"))
    assert ids[0] == second
    assert ids[2] == ids[3]
    assert create(engine, row("a", dedup_key="x")) == [first]
    create(engine, row("a"))
    assert numbers(engine) == {"a": gapless(5)}


def test_a_message_that_an_inbox_knows_takes_no_number(engine: Engine) -> None:
    known = uuid4()
    (old,) = create(engine, row("a", uuid=known, dedup_key="m1"), box=INBOX)
    ids = create(engine, row("a", uuid=str(known), dedup_key="m2"), row("a", uuid=uuid4()), row("b"), box=INBOX)
    assert ids[0] == old
    with engine.begin() as connection:
        again = NumberedRows(INBOX).insert(connection, [row("a", uuid=known), row("a", dedup_key="m3")])
    assert again.known == {old}
    assert numbers(engine, INBOX) == {"a": [1, 2, 3], "b": [1]}


def test_of_two_transactions_that_create_one_item_at_once_one_waits_and_finds_it(engine: Engine) -> None:
    counting = threading.Event()

    def executing(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("INSERT INTO order_outbox_items_seqs"):
            counting.set()

    quick = engine.execution_options(isolation_level="READ COMMITTED")
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as connection:
            (first,) = NumberedRows(OUTBOX).insert(connection, [row("a", dedup_key="x")]).ids
            event.listen(engine, "before_cursor_execute", executing)
            second = threads.submit(create, quick, row("a", dedup_key="x"))
            assert counting.wait(PATIENCE)
        assert second.result(PATIENCE) == [first]
    assert numbers(engine) == {"a": [1]}


def test_a_number_that_would_be_lost_to_another_keys_writer_is_an_error_to_try_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshot does not show the row that has the dedup_key, or the row is of another key."""
    create(engine, row("a"))
    isolation = "REPEATABLE READ" if engine.dialect.name == "mysql" else "READ COMMITTED"
    with engine.execution_options(isolation_level=isolation).connect() as connection:
        rows, looked_up, others = NumberedRows(OUTBOX), KnownRows.look_up, [row("b", dedup_key="x")]

        def look_up(*args: Any, **options: Any) -> dict[Mark, int]:
            found = looked_up(*args, **options)
            if not found and others:
                with suppress(StoreUnavailable):
                    create(engine, others.pop())
            return found

        monkeypatch.setattr(KnownRows, "look_up", look_up)
        with pytest.raises(StoreUnavailable, match="write them again"):
            rows.insert(connection, [row("a", dedup_key="x")])
        connection.rollback()
    assert numbers(engine) == {"a": [1], "b": [1]}


# ── writers at once ──────────────────────────────────────────────────────────────────────────────────


def test_writers_at_once_leave_no_gap_and_ids_follow_the_numbers_of_each_key(engine: Engine) -> None:
    def write(seed: int) -> None:
        randomness = random.Random(seed)
        rows = NumberedRows(OUTBOX)
        for _ in range(20):
            keys = [str(randomness.randrange(6)) for _ in range(randomness.randrange(1, 8))]
            with engine.connect() as connection:
                if inserted(connection, rows, keys) and randomness.random() < 0.7:
                    connection.commit()
                else:
                    connection.rollback()

    def inserted(connection: Connection, rows: NumberedRows, keys: list[str]) -> bool:
        try:
            rows.insert(connection, list(map(row, keys)))
        except OperationalError as error:
            # InnoDB locks the gap that a new key goes into, whatever order the keys come in (docs/audit.md).
            if engine.dialect.name == "mysql" and "Deadlock" in str(error):
                return False
            raise
        return True

    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(write, seed) for seed in range(6)]:
            done.result(PATIENCE)
    found = numbers(engine)
    assert sum(map(len, found.values())) > 100
    assert all(each == gapless(len(each)) for each in found.values())


def test_a_writer_of_a_key_waits_for_the_one_before_and_gets_a_later_id(engine: Engine) -> None:
    first_in, second_tries = threading.Event(), threading.Event()

    def second() -> list[int]:
        assert first_in.wait(PATIENCE)
        second_tries.set()
        return create(engine, row("a"))

    with ThreadPoolExecutor(1) as threads:
        later = threads.submit(second)
        with engine.begin() as connection:
            rows = NumberedRows(OUTBOX)
            rows.insert(connection, [row("b")])
            first = rows.insert(connection, [row("a")]).ids
            first_in.set()
            assert second_tries.wait(PATIENCE)
            assert create(engine, row("c"))  # other keys need not wait
        assert later.result(PATIENCE) > first
    assert numbers(engine)["a"] == [1, 2]


# ── tables and models ────────────────────────────────────────────────────────────────────────────────


def test_db_create_adds_the_column_to_a_table_that_is_there_and_a_second_time_changes_nothing(engine: Engine) -> None:
    numbered = Box(name=PLAIN.name, type=PLAIN.type, table=PLAIN.table, sequence=True)
    with engine.begin() as connection:
        SqlRows(PLAIN).insert(connection, [row("a")])
    (finding,) = checks.check(engine, [numbered])
    assert (finding.severity, "has no column seq" in finding.message) == ("error", True)
    with pytest.raises(SchemaMismatch, match="has no column seq"):
        create(engine, row("a"), box=numbered)
    for _ in range(2):
        schema.create(engine, [numbered])
        assert checks.check(engine, [numbered]) == []
    create(engine, row("a"), box=numbered)
    assert numbers(engine, numbered) == {"a": [None, 1]}


def test_a_table_without_its_counters_is_refused_with_what_to_do(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE order_outbox_items_seqs"))
    (finding,) = checks.check(engine, [OUTBOX])
    assert (finding.severity, "order_outbox_items_seqs" in finding.message) == ("error", True)
    with pytest.raises(SchemaMismatch, match="boxengine db create"):
        create(engine, row("a"))


def test_the_sql_of_db_ddl_makes_the_same(engine: Engine) -> None:
    statements = schema.ddl(engine.dialect.name, [OUTBOX])
    with engine.begin() as connection:
        for table in ("order_outbox_items", "order_outbox_items_seqs"):
            connection.execute(text(f"DROP TABLE {table}"))
        for statement in statements:
            connection.exec_driver_sql(statement.replace("%", "%%"))
    assert checks.check(engine, [OUTBOX]) == []
    create(engine, row("a"))
    assert numbers(engine) == {"a": [1]}


def test_a_box_without_a_sequence_has_neither_column_nor_counters(engine: Engine) -> None:
    found = inspect(engine)
    assert "seq" not in {column["name"] for column in found.get_columns("plain_outbox_items")}
    assert not found.has_table("plain_outbox_items_seqs")


def test_a_model_with_the_mixin_is_numbered_in_the_callers_session(engine: Engine) -> None:
    rows = NumberedRows(OUTBOX, OrderOutboxItem)
    with Session(engine) as session, session.begin():
        rows.insert(session, [row("a"), row("a")])
        assert [item.seq for item in session.query(OrderOutboxItem).order_by(OrderOutboxItem.id)] == [1, 2]
    with pytest.raises(SchemaMismatch, match="SequencedItem"):
        NumberedRows(OUTBOX, PlainOutboxItem)


def test_an_application_needs_no_more_on_the_counters_than_the_docs_say(engine: Engine) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("takes a role for the time of a transaction, which only PostgreSQL knows")
    with engine.begin() as connection:
        who = f"app_{uuid4().hex}"
        for statement in (
            f"CREATE ROLE {who}",
            f"GRANT INSERT, SELECT ON order_outbox_items TO {who}",
            f"GRANT USAGE ON SEQUENCE order_outbox_items_id_seq TO {who}",
            f"GRANT INSERT, SELECT, UPDATE ON order_outbox_items_seqs TO {who}",
            f"SET ROLE {who}",
        ):
            connection.exec_driver_sql(statement)
        rows = NumberedRows(OUTBOX)
        rows.insert(connection, [row("a"), row("b", dedup_key="x")])
        rows.insert(connection, [row("a"), row("b", dedup_key="x")])
        for statement in ("RESET ROLE", f"DROP OWNED BY {who}", f"DROP ROLE {who}"):
            connection.exec_driver_sql(statement)
    assert numbers(engine) == {"a": [1, 2], "b": [1]}


# ── what it costs ────────────────────────────────────────────────────────────────────────────────────


def statements_of(engine: Engine, act: Callable[[], Any]) -> list[str]:
    seen: list[str] = []

    def executed(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        seen.append(statement.split(maxsplit=1)[0])

    event.listen(engine, "before_cursor_execute", executed)
    try:
        act()
    finally:
        event.remove(engine, "before_cursor_execute", executed)
    return seen


@pytest.mark.parametrize("count", [1, 40])
def test_a_box_without_a_sequence_asks_the_database_nothing_more(engine: Engine, count: int) -> None:
    def insert(rows: SqlRows) -> Callable[[], None]:
        def act() -> None:
            with engine.begin() as connection:
                rows.insert(connection, [row(str(number)) for number in range(count)])

        act()  # looks at the table, once
        return act

    plain, numbered = SqlRows(PLAIN), NumberedRows(OUTBOX)
    without, with_ = statements_of(engine, insert(plain)), statements_of(engine, insert(numbered))
    assert without.count("INSERT") == len([each for each in without if each != "SELECT"]) == 1
    assert len(with_) == len(without) + (1 if engine.dialect.name == "postgresql" else 2)
