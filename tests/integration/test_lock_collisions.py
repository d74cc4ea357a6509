"""Somebody else's advisory lock with our number: the bucket waits for it, the others go on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import psycopg
import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.dialects.postgresql import lock_space
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.shape.tables import for_driver
from boxengine.domain.box import Box, BoxType
from boxengine.domain.outcome import Settlement


def make_box(table: str) -> Box:
    return Box(name=table.removesuffix("s"), type=BoxType.OUTBOX, table=table, bucket_size=2)


@pytest.fixture
def store(postgres_url: str) -> Iterator[SqlStore]:
    store = SqlStore(connect(postgres_url, connections=3))
    yield store
    store.close()


def insert(store: SqlStore, box: Box) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO {for_driver(store.table(box).name)} (uuid, event_key, bucket, payload) "
            "SELECT gen_random_uuid(), 'k', n, 'x' FROM generate_series(0, 1) AS n"
        )


def test_a_lock_of_the_application_with_our_number_delays_that_bucket_alone(store: SqlStore, postgres_url: str) -> None:
    box = make_box("order_items")
    schema.create(store.engine, [box])
    insert(store, box)
    space = lock_space(store.table(box))
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as application:
        application.execute("SELECT pg_advisory_lock(%s, 0)", (space,))
        with store.claims(box).open({0: None, 1: None}, 10) as claim:
            assert claim.refused == {0}
            claim.commit(Settlement(delivered=[item.id for item in claim.items]))
        # Not by closing the connection: the server may take a moment to see that.
        application.execute("SELECT pg_advisory_unlock(%s, 0)", (space,))
    with store.claims(box).open({0: None, 1: None}, 10) as claim:
        assert [item.bucket for item in claim.items] == [0]


def test_two_boxes_whose_lock_numbers_collide_take_turns(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.adapters.sql.dialects.postgresql.lock_space", lambda _table: 7)
    one, other = make_box("one_items"), make_box("other_items")
    schema.create(store.engine, [one, other])
    insert(store, one)
    insert(store, other)
    with store.claims(one).open({0: None}, 10) as claim:
        with store.claims(other).open({0: None, 1: None}, 10) as meanwhile:
            assert (meanwhile.refused, [item.bucket for item in meanwhile.items]) == (frozenset({0}), [1])
        claim.commit(Settlement(delivered=[item.id for item in claim.items]))
    with store.claims(other).open({0: None}, 10) as claim:
        assert [item.bucket for item in claim.items] == [0]


def test_tables_of_one_name_in_two_schemas_have_locks_of_their_own(store: SqlStore) -> None:
    with store.engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("tenant"))
    own, tenant = make_box("order_items"), make_box("tenant.order_items")
    also_own = make_box("public.order_items")
    schema.create(store.engine, [own, tenant])
    spaces = [lock_space(store.table(box)) for box in (own, tenant, also_own)]
    assert spaces[0] != spaces[1]
    assert spaces[0] == spaces[2]


@pytest.mark.parametrize(
    ("table", "locked_as"),
    [("order_items", "order_items"), ("OrderItems", '"OrderItems"'), ("order-10%-items", '"order-10%%-items"')],
)
def test_a_bucket_that_a_worker_of_0_1_0_has_locked_is_refused(
    store: SqlStore, postgres_url: str, table: str, locked_as: str
) -> None:
    box = make_box(table)
    schema.create(store.engine, [box])
    insert(store, box)
    number = crc32(f"boxengine:{locked_as}".encode())
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as older:
        older.execute("SELECT pg_advisory_xact_lock(%s, 0)", (number - (1 << 32) if number >= 1 << 31 else number,))
        with store.claims(box).open({0: None, 1: None}, 10) as claim:
            assert set(claim.refused) == {0}
            assert [item.bucket for item in claim.items] == [1]
