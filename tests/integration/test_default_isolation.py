"""A database whose transactions are serializable unless they say otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import psycopg
import pytest

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType
from tests.servers.databases import with_setting

BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items", bucket_size=1)
INSERT = "INSERT INTO order_items (uuid, event_key, bucket, payload) VALUES (gen_random_uuid(), 'k', 0, '')"


@pytest.fixture
def strict(postgres_url: str) -> str:
    return with_setting(postgres_url, "default_transaction_isolation=serializable")


@pytest.fixture
def store(strict: str) -> Iterator[SqlStore]:
    with closing(SqlStore(connect(strict, connections=1))) as store:
        schema.create(store.engine, [BOX])
        yield store


def test_a_poll_makes_no_transaction_of_an_application_fail(store: SqlStore, strict: str) -> None:
    with ExitStack() as stack:
        one, other = (stack.enter_context(psycopg.connect(strict.replace("+psycopg", ""))) for _ in range(2))
        one.execute("CREATE TABLE accounts (balance int)")
        one.execute("INSERT INTO accounts VALUES (1)")
        one.commit()
        one.execute("SELECT balance FROM accounts")
        other.execute("UPDATE accounts SET balance = 2")
        other.commit()
        assert store.poll(BOX, [0], 10) == []
        one.execute(INSERT)
        one.commit()
    assert len(store.poll(BOX, [0], 10)) == 1
