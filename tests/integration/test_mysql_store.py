"""What is peculiar to the store on MySQL and MariaDB: locks that outlive a transaction, clocks, ids, collations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pymysql
import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.mysql import MySqlStatements
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Backoff, Box, BoxType, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.outcome import Settlement
from boxengine.errors import InvalidItem, StoreUnavailable
from boxengine.ports import ItemFilter

BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items", bucket_size=4)
INBOX = Box(name="payment_item", type=BoxType.INBOX, table="payment_items", bucket_size=4)


@pytest.fixture
def engine(mysql_url: str) -> Iterator[sa.Engine]:
    engine = connect(mysql_url, connections=4)
    schema.create(engine, [BOX, INBOX])
    yield engine
    engine.dispose()


@pytest.fixture
def other(mysql_url: str) -> Iterator[SqlStore]:
    """Another process's store."""
    store = SqlStore(connect(mysql_url, connections=2))
    yield store
    store.close()


def attributes(key: str, **more: Any) -> dict[str, Any]:
    return {"event_key": key, "bucket": 0, "payload": b"x", **more}


def insert(engine: sa.Engine, *keys: str, box: Box = BOX, **more: Any) -> list[int]:
    with engine.begin() as connection:
        return SqlRows(box).insert(connection, [attributes(key, **more) for key in keys]).ids


def statuses(engine: sa.Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.execute(sa.text("SELECT status FROM order_items ORDER BY id")).scalars())


# ── plans ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_in_order_of_keys_looks_up_each_key_in_a_table_without_statistics(
    engine: sa.Engine, other: SqlStore
) -> None:
    """Whether an earlier item of its key waits. The optimizer would read all earlier rows of the bucket for each row."""
    rows = 1_000
    box = replace(BOX, name="strict_item", table="strict_items", strict_order=StrictOrder.KEY, backoff=Backoff())
    schema.create(engine, [box])
    insert(engine, *(f"key {number}" for number in range(rows)), box=box)
    with engine.connect() as connection:
        before = read_by_server(connection)
        with other.claims(box).open({0: None}, rows) as claim:
            assert len(claim.items) == rows
        assert read_by_server(connection) - before < 20 * rows


def read_by_server(connection: sa.Connection) -> int:
    """Rows and index entries that all its statements have read so far."""
    found = connection.execute(sa.text("SHOW GLOBAL STATUS LIKE 'Handler_read%'"))
    return sum(int(value) for _, value in found)


# ── locks ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_locks_its_rows_and_no_others(engine: sa.Engine, other: SqlStore) -> None:
    own = insert(engine, *"abc")
    foreign = insert(engine, *"de", bucket=1)
    with SqlStore(engine).claims(BOX).open({0: None}, 10) as claim, other.engine.connect() as connection:
        assert [item.id for item in claim.items] == own
        free = connection.execute(sa.text("SELECT id FROM order_items ORDER BY id FOR UPDATE SKIP LOCKED")).scalars()
        assert list(free) == foreign


def test_a_claim_does_not_wait_for_rows_that_are_not_committed(engine: sa.Engine) -> None:
    """In a small table the optimizer would rather look at all pending rows than look up each by its id."""
    with engine.connect() as writer:
        SqlRows(BOX).insert(writer, [attributes("a", bucket=1)])
        own = insert(engine, *"bc")
        with SqlStore(engine).claims(BOX).open({0: None, 1: None}, 10) as claim:
            assert [item.id for item in claim.items] == own


def test_the_server_ends_a_claim_that_has_fallen_silent(mysql_url: str, engine: sa.Engine, other: SqlStore) -> None:
    insert(engine, "a")
    silent = SqlStore(connect(mysql_url, connections=1, idle_timeout=timedelta(seconds=1)))

    def fall_silent() -> None:
        with silent.claims(BOX).open({0: None}, 10) as claim, other.engine.connect() as connection:
            (name,) = MySqlStatements(other.table(BOX))._lock_names([0])
            got = connection.execute(sa.text("SELECT GET_LOCK(:name, 30)"), {"name": name}).scalar_one()
            connection.execute(sa.text("DO RELEASE_LOCK(:name)"), {"name": name})
            assert got == 1
            claim.commit(Settlement(delivered=[item.id for item in claim.items]))

    with pytest.raises(StoreUnavailable):
        fall_silent()
    assert statuses(engine) == [Status.PENDING]
    with silent.claims(BOX).open({0: None}, 10) as claim:
        assert len(claim.items) == 1
    silent.close()


@pytest.mark.parametrize("settled", [True, False])
def test_a_lock_that_cannot_be_freed_goes_with_its_connection(
    engine: sa.Engine, other: SqlStore, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    rows = insert(engine, "a")
    store = SqlStore(engine)

    def refuse(*_arguments: Any) -> None:
        raise pymysql.err.OperationalError(1317, "Query execution was interrupted")

    monkeypatch.setattr(MySqlStatements, "unlock", refuse)
    try:
        with store.claims(BOX).open({0: None}, 10) as claim:
            if settled:
                claim.commit(Settlement(delivered=rows))
    except StoreUnavailable:
        assert not settled
    monkeypatch.undo()
    assert statuses(engine) == [Status.DELIVERED if settled else Status.PENDING]
    for again in (other, store):
        with again.claims(BOX).open({0: None}, 10) as claim:
            assert claim.refused == frozenset()


def test_locks_taken_by_a_statement_that_broke_off_are_freed(
    engine: sa.Engine, other: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = MySqlStatements.claim

    def break_off(self: MySqlStatements, cursor: Any, buckets: Any, limit: int, **_options: object) -> Any:
        take(self, cursor, buckets, limit)
        raise pymysql.err.OperationalError(1317, "Query execution was interrupted")

    monkeypatch.setattr(MySqlStatements, "claim", break_off)
    with pytest.raises(StoreUnavailable), SqlStore(engine).claims(BOX).open({0: None, 1: None}, 10):
        pass
    monkeypatch.undo()
    with other.claims(BOX).open({0: None, 1: None}, 10) as claim:
        assert claim.refused == frozenset()


def test_tables_of_one_name_in_two_databases_do_not_share_locks(engine: sa.Engine, mysql_url: str) -> None:
    address = sa.make_url(mysql_url)
    second = f"{address.database}_2"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {second}")
    twin = connect(address.set(database=second).render_as_string(hide_password=False), connections=1)
    try:
        schema.create(twin, [BOX])
        with SqlStore(engine).claims(BOX).open({0: None}, 10), SqlStore(twin).claims(BOX).open({0: None}, 10) as claim:
            assert claim.refused == frozenset()
    finally:
        twin.dispose()
        with engine.begin() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {second}")


def test_a_handler_that_ends_the_transaction_leaves_its_items_pending(engine: sa.Engine) -> None:
    rows = insert(engine, "a")

    def settle() -> None:
        with SqlStore(engine).claims(BOX).open({0: None}, 10) as claim:
            claim.session.connection().exec_driver_sql("CREATE TABLE surprise (id int)")
            claim.commit(Settlement(delivered=rows))

    with pytest.raises(StoreUnavailable, match="SAVEPOINT"):
        settle()
    assert statuses(engine) == [Status.PENDING]


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("returning", [True, False])
def test_ids_come_in_the_order_given_whatever_the_step(
    engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, returning: bool
) -> None:
    """MySQL has no INSERT ... RETURNING; MariaDB without it stands in."""
    keys = [str(number) for number in range(1200)]
    with engine.begin() as connection:
        monkeypatch.setattr(connection.dialect, "insert_returning", returning and connection.dialect.insert_returning)
        connection.exec_driver_sql("SET SESSION auto_increment_increment = 3")
        ids = SqlRows(BOX).insert(connection, [attributes(key) for key in keys]).ids
        connection.exec_driver_sql("SET SESSION auto_increment_increment = DEFAULT")
        found = connection.execute(sa.text("SELECT id, event_key FROM order_items")).all()
    key_of = {row.id: row.event_key for row in found}
    assert [key_of[row_id] for row_id in ids] == keys


def test_a_known_dedup_key_gives_the_id_of_the_item_that_has_it(engine: sa.Engine) -> None:
    (first,) = insert(engine, "a", dedup_key="once")
    assert insert(engine, "b", dedup_key="once") == [first]
    assert insert(engine, "b", dedup_key="ONCE") != [first]
    assert len(statuses(engine)) == 2


def test_a_dedup_key_committed_after_the_callers_snapshot_is_known(engine: sa.Engine, mysql_url: str) -> None:
    application = sa.create_engine(mysql_url, isolation_level="REPEATABLE READ")
    with application.begin() as connection:
        connection.execute(sa.text("SELECT COUNT(*) FROM order_items"))
        (first,) = insert(engine, "a", dedup_key="once")
        assert SqlRows(BOX).insert(connection, [attributes("b", dedup_key="once")]).ids == [first]
    application.dispose()


def test_a_table_whose_uuids_have_no_dashes_takes_items_and_finds_them(engine: sa.Engine, other: SqlStore) -> None:
    with engine.begin() as connection:
        for box in (BOX, INBOX):
            connection.exec_driver_sql(f"ALTER TABLE {box.table} MODIFY uuid CHAR(32) NOT NULL")
    wanted = UUID(int=7)
    first = insert(engine, "a", box=INBOX, uuid=wanted)
    assert insert(engine, "a", box=INBOX, uuid=wanted) == first
    (item,) = insert(engine, "a", uuid=str(wanted))
    with engine.connect() as connection:
        assert connection.execute(sa.text(f"SELECT uuid FROM {BOX.table}")).scalar() == wanted.hex
    items = SqlItems(other)
    for spelled in (str(wanted), wanted.hex):
        assert [row.id for row in items.page(BOX, ItemFilter(uuid=spelled), after=0, limit=10)] == [item]


def test_a_message_received_twice_is_stored_once_by_its_uuid(engine: sa.Engine) -> None:
    first = insert(engine, "a", box=INBOX, uuid=UUID(int=7))
    assert insert(engine, "a", box=INBOX, uuid=UUID(int=7)) == first


def test_a_violation_that_is_no_duplicate_of_the_item_is_not_swallowed(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE UNIQUE INDEX ux_key ON order_items (event_key)")
    insert(engine, "a")
    with pytest.raises(InvalidItem):
        insert(engine, "a", dedup_key="new")
    assert len(statuses(engine)) == 1


def test_of_keys_that_the_collation_takes_for_one_all_that_wait_are_told(engine: sa.Engine) -> None:
    keys = {"k", "k ", "K"}
    with engine.begin() as connection:
        connection.execute(
            sa.text("ALTER TABLE order_items MODIFY event_key varchar(255) COLLATE utf8mb4_general_ci NOT NULL")
        )
    insert(engine, *keys)
    insert(engine, "j", bucket=1)
    with SqlStore(engine).claims(BOX).open({0: None, 1: None}, 10) as claim:
        last = max(item.id for item in claim.items)
        assert set(claim.waiting_keys(claim.items, {0: last, 1: last})) == {*keys, "j"}


def test_moments_are_utc_whatever_the_sessions_zone(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("SET SESSION time_zone = '+05:30'")
        SqlRows(BOX).insert(connection, [attributes("a")])
        skew = "SELECT ABS(TIMESTAMPDIFF(SECOND, created_at, UTC_TIMESTAMP(6))) FROM order_items"
        assert connection.execute(sa.text(skew)).scalar_one() < 600
        connection.exec_driver_sql("SET SESSION time_zone = DEFAULT")
