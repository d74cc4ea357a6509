"""One look for many boxes, of which one has no table, or one that is renamed or gives no answer."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from tests.conformance import stores
from tests.integration.locking import locked


@pytest.mark.parametrize("name", ["postgresql", "mysql"])
def test_a_box_without_a_table_hides_no_pending_row_of_the_others(name: str, request: pytest.FixtureRequest) -> None:
    with stores.open_harness(name, request) as harness:
        idle, busy = harness.make_box(), harness.make_box()
        harness.insert(busy)
        missing = replace(idle, name="missing_outbox_item", table="no_such_table")
        assert harness.store.pending([missing, idle, busy]) == {missing.name, busy.name}


@pytest.mark.parametrize("name", ["postgresql", "mysql"])
def test_a_table_that_is_renamed_costs_the_other_boxes_nothing_and_answers_again_under_its_old_name(
    name: str, request: pytest.FixtureRequest
) -> None:
    with stores.open_harness(name, request) as harness:
        boxes = [harness.make_box() for _ in range(4)]
        harness.insert(boxes[1])
        store = harness.store
        assert isinstance(store, SqlStore)
        assert store.pending(boxes) == {boxes[1].name}
        known, losses = [store.table(box) for box in boxes if box is not boxes[2]], store.losses
        _rename(store, boxes[2].table, "elsewhere")
        for _ in range(2):
            assert store.pending(boxes) == {boxes[1].name, boxes[2].name}
        assert store.losses == losses
        assert all(store.table(table.box) is table for table in known)
        _rename(store, "elsewhere", boxes[2].table)
        assert store.pending(boxes) == {boxes[1].name}


def _rename(store: SqlStore, table: str, to: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} RENAME TO {to}"))


@pytest.mark.parametrize("name", ["postgresql", "mysql"])
def test_a_table_that_somebody_has_locked_hides_no_other_and_is_looked_at_again_once_it_is_free(
    name: str, request: pytest.FixtureRequest
) -> None:
    with stores.open_harness(name, request) as harness:
        boxes = [harness.make_box() for _ in range(7)]
        harness.insert(boxes[1])
        assert isinstance(harness.store, SqlStore)
        others = harness.store.engine
        url = others.url.render_as_string(hide_password=False)
        engine = connect(url, connections=2, lock_limit=timedelta(seconds=0.05))
        store = SqlStore(engine)
        try:
            assert store.pending(boxes) == {boxes[1].name}
            with locked(others, boxes[5].table):
                for _ in range(2):
                    assert store.pending(boxes) == {boxes[1].name, boxes[5].name}
            for _ in range(2):
                assert store.pending(boxes) == {boxes[1].name}
        finally:
            store.close()
