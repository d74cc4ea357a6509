"""A box's table that the application has divided into partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase

from boxengine import OutboxItem
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.census import SqlCensus
from boxengine.adapters.sql.making import upgrade
from boxengine.adapters.sql.making.planning import Step
from boxengine.domain.box import Box, BoxType, StrictOrder
from boxengine.domain.outcome import Settlement
from boxengine.ports import Count, Precision


class Base(DeclarativeBase):
    pass


class OrderItem(OutboxItem, Base):
    __tablename__ = "order_items"
    __table_args__ = ({"postgresql_partition_by": "RANGE (id)"},)


BOX = Box(
    name="order_item",
    type=BoxType.OUTBOX,
    table="order_items",
    bucket_size=1,
    strict_order=StrictOrder.KEY,
    max_retries=None,
)


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    engine = connect(postgres_url, connections=2)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE order_items_1 PARTITION OF order_items FOR VALUES FROM (1) TO (3)")
        connection.exec_driver_sql("CREATE TABLE order_items_rest PARTITION OF order_items DEFAULT")
    yield engine
    engine.dispose()


def deliver(engine: sa.Engine, count: int) -> list[int]:
    """Items that were created and sent, of both partitions."""
    with engine.begin() as connection:
        item = {"event_key": "k", "bucket": 0, "payload": b""}
        ids = [SqlRows(BOX, OrderItem).insert(connection, [item]).ids[0] for _ in range(count)]
    with SqlStore(engine).plain_claims(BOX).open({0: None}, 10) as claim:
        sent = [int(each.id) for each in claim.items]
        assert claim.commit(Settlement(delivered=sent)) is None
    assert sent == ids
    return sent


def test_an_upgrade_makes_the_indexes_that_it_lacks(engine: sa.Engine) -> None:
    def plan() -> list[Step]:
        with engine.connect() as connection:
            return upgrade.plan(connection, [BOX], [OrderItem])

    assert [each.purpose for each in plan()] == [
        "make the index ix_order_items_troubled, for which writers wait, as the table has partitions"
    ]
    list(upgrade.apply(engine, plan()))
    assert plan() == []
    assert len(deliver(engine, 5)) == 5


def test_its_delivered_rows_are_counted_once_it_was_analyzed(engine: sa.Engine) -> None:
    deliver(engine, 5)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE order_items")
    assert SqlCensus(SqlStore(engine), small=0).take(BOX).delivered == Count(5, Precision.ABOUT)
