"""Sequences from which each session draws several ids at once: ids then do not follow the order of the inserts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.making import checks, schema
from boxengine.domain.box import Box, BoxType, Storage
from tests.integration.log.shared import reader_of

BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items")
CACHED = "ALTER SEQUENCE order_items_id_seq CACHE 10"
AS_USUAL = "ALTER SEQUENCE order_items_id_seq CACHE 1"


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    engine = connect(postgres_url, connections=3)
    yield engine
    engine.dispose()


def run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


@pytest.mark.parametrize("storage", Storage)
def test_db_check_tells_that_items_of_one_key_may_overtake_each_other(engine: Engine, storage: Storage) -> None:
    box = replace(BOX, storage=storage)
    schema.create(engine, [box])
    assert checks.check(engine, [box]) == []
    run(engine, CACHED)
    rows = SqlRows(box)
    with engine.connect() as first, engine.connect() as second:
        ids = []
        for writer in (first, second, first):  # one after the other, as with a row lock
            ids += rows.insert(writer, [{"event_key": "k", "bucket": 0, "payload": b"{}"}]).ids
            writer.commit()
    assert ids[2] < ids[1]
    (finding,) = checks.check(engine, [box])
    assert finding.severity == "warning"
    assert "draws 10 ids at once" in finding.message
    assert finding.remedy.startswith("ALTER SEQUENCE public.order_items_id_seq CACHE 1")
    run(engine, AS_USUAL)
    assert checks.check(engine, [box]) == []


def test_of_a_log_with_subscriptions_it_is_told_once(engine: Engine) -> None:
    log = replace(BOX, storage=Storage.LOG, subscriptions=("billing", "search"))
    readers = [reader_of(log, name) for name in log.subscriptions]
    schema.create(engine, [log, *readers])
    assert checks.check(engine, readers) == []
    run(engine, CACHED)
    (finding,) = checks.check(engine, readers)
    assert finding.box == readers[0].name
    assert "draws 10 ids at once" in finding.message


def test_a_column_that_makes_its_ids_itself_is_looked_at_too(engine: Engine) -> None:
    schema.create(engine, [BOX])
    for change in (
        "ALTER COLUMN id DROP DEFAULT",
        "ALTER COLUMN id DROP IDENTITY IF EXISTS",
        "ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME own_ids CACHE 10)",
    ):
        run(engine, f"ALTER TABLE order_items {change}")
    (finding,) = checks.check(engine, [BOX])
    assert "sequence public.own_ids" in finding.message
