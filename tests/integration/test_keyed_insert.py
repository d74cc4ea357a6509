"""Rows that may be there already: one statement for many, and the ids in the order given."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, text

from boxengine.adapters.sql.creating import known_rows
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.receiving.inbox import SqlInbox
from boxengine.domain.box import Box, BoxType
from boxengine.errors import InvalidItem, QueueUnavailable, SchemaMismatch
from boxengine.ports import Signal

INBOX = Box(name="order_inbox_item", type=BoxType.INBOX, table="order_inbox_items")
OUTBOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items")


@pytest.fixture(params=["postgres_url", "mysql_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    made = create_engine(request.getfixturevalue(request.param), poolclass=NullPool)
    schema.create(made, [INBOX, OUTBOX])
    yield made
    made.dispose()


def rows(*keys: str | None, **others: Any) -> list[dict[str, Any]]:
    return [{"event_key": "1", "bucket": 1, "payload": b"x", "dedup_key": key, **others} for key in keys]


def insert(engine: Engine, box: Box, given: list[dict[str, Any]]) -> list[int]:
    with engine.begin() as connection:
        return SqlRows(box).insert(connection, given).ids


def count(engine: Engine, box: Box) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(f"SELECT count(*) FROM {box.table}")).scalar_one())


@pytest.mark.parametrize("box", [INBOX, OUTBOX], ids=["inbox", "outbox"])
def test_known_rows_give_the_id_of_the_first_wherever_they_are(engine: Engine, box: Box) -> None:
    a, b = insert(engine, box, rows("a", "b"))
    ids = insert(engine, box, rows("c", "a", "d", "c", None, "b", None))
    assert ids[1] == a
    assert ids[5] == b
    assert ids[0] == ids[3]
    new = [ids[0], ids[2], ids[4], ids[6]]
    assert new == sorted(new)
    assert len(set(new)) == 4
    assert count(engine, box) == 6


@pytest.mark.parametrize("box", [INBOX, OUTBOX], ids=["inbox", "outbox"])
def test_it_is_told_which_rows_were_there_already(engine: Engine, box: Box) -> None:
    a, b = insert(engine, box, rows("a", "b"))
    with engine.begin() as connection:
        ids, known = SqlRows(box).insert(connection, rows("c", "a", None, "c", "b"))
    assert known == {a, b}
    assert {ids[1], ids[4]} == known


def test_ids_follow_the_order_given_over_many_rows(engine: Engine) -> None:
    ids = insert(engine, INBOX, [row for n in range(2500) for row in rows(f"k{n}", uuid=uuid4())])
    assert ids == sorted(ids)
    assert len(set(ids)) == 2500


def test_many_rows_take_few_statements(engine: Engine) -> None:
    statements: list[str] = []

    def executed(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    insert(engine, INBOX, rows("0"))
    event.listen(engine, "before_cursor_execute", executed)
    given = [row for n in range(400) for row in rows(str(n), uuid=uuid4())]
    insert(engine, INBOX, given)
    assert sum(statement.lstrip().startswith("INSERT") for statement in statements) == 1


def test_an_inbox_knows_a_message_by_its_uuid_too_as_old_tables_have_no_dedup_key(engine: Engine) -> None:
    known = uuid4()
    (old,) = insert(engine, INBOX, rows(None, uuid=known))
    assert insert(engine, INBOX, rows("later", uuid=str(known))) == [old]
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {INBOX.table} DROP COLUMN dedup_key"))
    given = [{"event_key": "1", "bucket": 1, "payload": b"x", "uuid": each} for each in (uuid4(), known)]
    assert insert(engine, INBOX, given)[1] == old
    with closing(SqlStore(engine)) as store:
        assert "dedup_key" not in SqlInbox(store).columns(INBOX)


def test_a_message_is_known_by_its_uuid_where_the_table_keeps_it_as_text(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {INBOX.table} DROP COLUMN dedup_key"))
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"ALTER TABLE {INBOX.table} ALTER COLUMN uuid TYPE varchar"))
    known = uuid4()
    given = [{"event_key": "1", "bucket": 1, "payload": b"x", "uuid": each} for each in (uuid4(), str(known), uuid4())]
    ids = insert(engine, INBOX, given)
    again = [{**each, "uuid": UUID(str(each["uuid"]))} for each in given]
    assert insert(engine, INBOX, again) == ids
    assert insert(engine, INBOX, [{**given[0], "uuid": known.hex}]) == [ids[1]]


def test_rows_that_are_there_already_are_looked_up_in_parts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_rows, "LOOKED_UP_AT_ONCE", 3)
    given = [{**row, "uuid": uuid4()} for row in rows(*"abcdefgh")]
    ids = insert(engine, INBOX, given)
    marks: list[int] = []

    def executed(_connection: Any, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        if statement.startswith("SELECT") and f"FROM {INBOX.table}" in statement:
            marks.append(len(values))

    event.listen(engine, "before_cursor_execute", executed)
    assert insert(engine, INBOX, given) == ids
    assert max(marks) == 3


def test_a_table_that_could_store_a_message_twice_is_refused(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {OUTBOX.table} DROP COLUMN dedup_key"))
    with closing(SqlStore(engine)) as store, pytest.raises(SchemaMismatch, match="could store a message twice"):
        SqlInbox(store).columns(OUTBOX)


def test_a_row_that_another_unique_constraint_refuses_is_an_error_and_no_silent_loss(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"CREATE UNIQUE INDEX one_name ON {INBOX.table} (event_name)"))
    insert(engine, INBOX, rows("a", event_name="x"))
    with pytest.raises(InvalidItem, match="contradicts a unique constraint"):
        insert(engine, INBOX, rows("b", event_name="x"))
    assert count(engine, INBOX) == 1


def test_a_savepoint_says_whose_fault_it_is(engine: Engine) -> None:
    """What the database refuses for the row's sake is ``InvalidItem``, and the transaction goes on."""
    with closing(SqlStore(engine)) as store:
        inbox = SqlInbox(store)
        with inbox.transaction(INBOX) as transaction:
            with pytest.raises(InvalidItem), transaction.savepoint():
                SqlRows(INBOX).insert(transaction.session, rows("a", event_name="n" * 300))
            with transaction.savepoint():
                (row,) = SqlRows(INBOX).insert(transaction.session, rows("b")).ids
            transaction.reject(row, "no good: 100 %")
    with engine.connect() as connection:
        found = connection.execute(text(f"SELECT status, errors_count, error_log FROM {INBOX.table}")).all()
    assert [tuple(each) for each in found] == [(1, 1, "no good: 100 %")]


def test_stored_payloads_are_read_by_id_own_ones_of_the_transaction_too(engine: Engine) -> None:
    (before,) = insert(engine, INBOX, rows("a", payload=b"\x00\xff"))
    with closing(SqlStore(engine)) as store, SqlInbox(store).transaction(INBOX) as transaction:
        (now,) = SqlRows(INBOX).insert(transaction.session, rows("b", payload=b"b")).ids
        assert transaction.stored_payloads([before, now, now + 1]) == {before: b"\x00\xff", now: b"b"}


def test_a_wake_up_that_cannot_be_sent_does_not_cost_the_caller_its_commit(engine: Engine) -> None:
    def send(_signals: list[Signal]) -> None:
        raise QueueUnavailable("Redis is down")

    with engine.begin() as connection:
        SqlRows(OUTBOX, signal=send).insert(connection, rows("a"))
    assert count(engine, OUTBOX) == 1
