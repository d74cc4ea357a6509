"""Many tables are looked up at once, with the same result as one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.shape.tables import reflect, reflect_all
from boxengine.app.boxes import load
from boxengine.app.checking.bucket_sizes import refuse_other_sizes
from boxengine.app.servers.database import connect_store
from boxengine.domain.box import Box, BoxType, Storage, StrictOrder
from boxengine.errors import SchemaMismatch

PLAIN = Box(name="plain_item", table="plain_items", type=BoxType.OUTBOX)
BOXES = [
    PLAIN,
    replace(PLAIN, name="order_item", table="order_items", strict_order=StrictOrder.KEY),
    replace(PLAIN, name="inbox_item", table="inbox_items", type=BoxType.INBOX),
    replace(PLAIN, name="odd_item", table="od%d:Items"),
    replace(PLAIN, name="foreign_item", table='oth%er "one".plain_items'),
    replace(PLAIN, name="numbered_item", table="numbered_items", sequence=True),
    replace(PLAIN, name="log_item", table="log_items", storage=Storage.LOG),
]
MISSING = replace(PLAIN, name="missing_item", table="missing_items")
LACKING = replace(PLAIN, name="lacking_item", table="lacking_items")


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    engine = connect(postgres_url, connections=2)
    with engine.begin() as connection:
        connection.exec_driver_sql('CREATE SCHEMA "oth%%er ""one"""')
    schema.create(engine, [*BOXES, LACKING])
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE lacking_items DROP bucket")
        connection.exec_driver_sql("ALTER TABLE plain_items DROP dedup_key, ALTER error_log TYPE varchar(80)")
        connection.exec_driver_sql("COMMENT ON TABLE order_items IS 'boxengine bucket_size=7'")
        connection.exec_driver_sql(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_order_items_pending'::regclass"
        )
    yield engine
    engine.dispose()


def test_all_at_once_look_as_each_alone_and_those_that_cannot_serve_are_left_out(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        found = reflect_all(connection, [*BOXES, MISSING, LACKING])
        assert found == {box.name: reflect(connection, box) for box in BOXES}
    assert (found["order_item"].recorded_size, found["order_item"].pending_first) == (7, "ORDER BY status, id")


def test_of_no_box_nothing_is_asked(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        assert reflect_all(connection, []) == {}


def test_a_store_that_has_looked_many_tables_up_asks_for_none_of_them_again_and_notices_changes(
    engine: sa.Engine,
) -> None:
    store = SqlStore(engine)
    store.look_up([*BOXES, MISSING])
    with counting(engine) as statements:
        assert [store.table(box).box for box in BOXES] == BOXES
    assert statements == []
    with pytest.raises(SchemaMismatch, match="there is no table 'missing_items'"):
        store.table(MISSING)
    assert store.look_again() == []
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE inbox_items ADD extra int")
    assert store.look_again() == ["inbox_item"]


def test_a_start_with_many_boxes_asks_the_catalog_no_more_often_than_one_with_few(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    path, asked = tmp_path / "outbox.yml", list[int]()
    for number in (2, 40):
        boxes = "\n".join(f"  many_{each}_item: {{transports: {{log: {{}}}}}}" for each in range(number))
        path.write_text(f"database: {{url: '{postgres_url}'}}\nredis: {{url: '{redis_url}'}}\noutbox_items:\n{boxes}\n")
        resolved = load(path).resolved
        store = connect_store(resolved.settings)
        try:
            schema.create(store.engine, [pipeline.box for pipeline in resolved.pipelines.values()])
            with counting(store._looks) as statements:
                refuse_other_sizes(resolved, [], store)
            asked.append(len(statements))
        finally:
            store.close()
    assert asked[0] == asked[1]


@contextmanager
def counting(engine: sa.Engine) -> Iterator[list[str]]:
    """The statements that are run within the block."""
    statements: list[str] = []

    def note(*call: Any) -> None:
        statements.append(call[2])

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(engine, "before_cursor_execute", note)
