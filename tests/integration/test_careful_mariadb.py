"""A MariaDB server whose sessions refuse updates without a key, and cut off long answers, to keep people from accidents."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType, Retention
from boxengine.domain.item import Status
from boxengine.domain.outcome import FailedAttempt, Settlement
from tests.servers.mariadb import MariaDBFromSystem
from tests.servers.promised import promised_servers, require

BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items", bucket_size=1)
GOING = Box(
    name="going_item",
    type=BoxType.OUTBOX,
    table="going_items",
    bucket_size=1,
    retention=Retention(delivered=timedelta(0)),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    require(MariaDBFromSystem().offer(), promised_servers(os.environ))
    with ExitStack() as stack:
        server = MariaDBFromSystem().start(tmp_path, stack)
        admin = create_engine(server.address)
        with admin.begin() as connection:
            connection.exec_driver_sql("CREATE DATABASE shop")
            connection.exec_driver_sql("SET GLOBAL sql_safe_updates = 1, GLOBAL sql_select_limit = 3")
        admin.dispose()
        store = stack.enter_context(closing(SqlStore(connect(f"{server.address}/shop", connections=2))))
        schema.create(store.engine, [BOX, GOING])
        yield store


def fill(store: SqlStore, box: Box, count: int) -> None:
    row = f"INSERT INTO {box.table} (uuid, event_key, bucket, payload) VALUES (uuid(), 'k', 0, '')"
    with store.engine.begin() as connection:
        for _ in range(count):
            connection.execute(text(row))


def counts(store: SqlStore, box: Box) -> dict[int, int]:
    return dict(store.counts(box))


def test_items_are_delivered_fail_and_go(store: SqlStore) -> None:
    fill(store, BOX, 5)
    with store.plain_claims(BOX).open({0: None}, 10) as claim:
        first, *others = (item.id for item in claim.items)
        failed = [FailedAttempt(first, Status.FAILED, 1, "down")]
        assert claim.commit(Settlement(delivered=others, failed=failed)) is None
    assert counts(store, BOX) == {Status.FAILED: 1, Status.DELIVERED: 4}
    ends = datetime.now(UTC) + timedelta(days=1)
    span = {"created_from": ends - timedelta(days=9), "created_before": ends}
    assert store.delete_finished(BOX, [Status.DELIVERED], limit=10, **span) == 4
    assert store.sweep_finished(BOX, {Status.FAILED: ends}, after=None, limit=10).deleted == 1


def test_items_that_go_on_delivery_go(store: SqlStore) -> None:
    fill(store, GOING, 5)
    with store.plain_claims(GOING).open({0: None}, 10) as claim:
        assert claim.commit(Settlement(delivered=[item.id for item in claim.items])) is None
    assert counts(store, GOING) == {}
