"""Pending rows in buckets that a box does not have are found, cheaply, and told of with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.delivering.stranded import MOST
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType, Storage

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=64)
SMALLER = replace(BOX, bucket_size=16)


@pytest.fixture(params=["postgres_url", "mysql_url"], ids=["postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    engine = connect(request.getfixturevalue(request.param), connections=2)
    schema.create(engine, [BOX])
    yield engine
    engine.dispose()


def fill(engine: sa.Engine, *buckets: int) -> None:
    with engine.begin() as connection:
        SqlRows(BOX).insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": bucket} for bucket in buckets])


def test_where_all_buckets_are_served_nothing_is_said(engine: sa.Engine) -> None:
    fill(engine, 0, 15, 63)
    assert SqlStore(engine).stranded(BOX) is None


def test_rows_that_a_smaller_size_left_behind_are_counted_and_the_size_to_go_back_to_is_named(
    engine: sa.Engine,
) -> None:
    fill(engine, 0, 15, 16, 40, 40)
    told = SqlStore(engine).stranded(SMALLER) or ""
    assert "3 pending rows in buckets outside of 0 to 15" in told
    assert "set it back to 41 or more" in told


def test_of_a_table_that_records_its_size_that_size_is_named(engine: sa.Engine) -> None:
    """A size between the highest bucket and the recorded one would put keys into other buckets than before."""
    record = {"postgresql": f"COMMENT ON TABLE {BOX.table} IS", "mysql": f"ALTER TABLE {BOX.table} COMMENT"}
    with engine.begin() as connection:
        statement = record["postgresql" if engine.dialect.name == "postgresql" else "mysql"]
        connection.exec_driver_sql(f"{statement} 'boxengine bucket_size=64'")
    fill(engine, 40)
    assert "set it back to 64, for workers and applications" in (SqlStore(engine).stranded(SMALLER) or "")


def test_rows_that_are_finished_strand_nobody(engine: sa.Engine) -> None:
    fill(engine, 40)
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {BOX.table} SET status = 2"))
    assert SqlStore(engine).stranded(SMALLER) is None


def test_a_bucket_below_zero_is_no_matter_of_the_size(engine: sa.Engine) -> None:
    fill(engine, -1)
    told = SqlStore(engine).stranded(SMALLER) or ""
    assert "1 pending row in" in told
    assert "bucket_size was" not in told


def test_of_a_multitude_only_the_beginning_is_counted(engine: sa.Engine) -> None:
    fill(engine, *[20] * (MOST + 5))
    assert f"{MOST:,} or more pending rows" in (SqlStore(engine).stranded(SMALLER) or "")


def test_of_a_log_the_sentence_does_not_call_delivered_rows_pending_nor_send_people_to_change_its_size(
    postgres_url: str,
) -> None:
    log, engine = replace(BOX, storage=Storage.LOG), connect(postgres_url, connections=2)
    try:
        schema.create(engine, [log])
        with engine.begin() as connection:
            SqlRows(log).insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": 40}])
        told = SqlStore(engine).stranded(replace(log, bucket_size=16)) or ""
        assert "1 row in buckets outside of 0 to 15" in told
        assert "set it back to 41 or more, for workers and applications; with storage: log it stays what it was" in told
        assert "run empty" not in told
    finally:
        engine.dispose()
