"""What the store does about a connection that the server ends at the worst moments."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.errors import StoreUnavailable


@pytest.fixture
def store(postgres_url: str) -> Iterator[SqlStore]:
    store = SqlStore(connect(postgres_url, connections=1))
    yield store
    store.close()


def test_a_connection_lost_between_the_answer_and_its_return_to_the_pool_leaves_no_traceback(
    store: SqlStore, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by the chaos suite: the pool's reset met the loss first, and logged it with a traceback."""
    caplog.set_level(logging.INFO, logger="boxengine")  # as in a worker
    with suppress(StoreUnavailable), store._cursor(store.engine) as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone() or (0,)
        with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as admin:
            admin.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
    with suppress(StoreUnavailable):
        store.ping()  # finds out, if that has not happened yet
    store.ping()
    assert [record.getMessage() for record in caplog.records] == []
