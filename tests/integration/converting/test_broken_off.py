"""A command that dies within a step: the database stays where it was, and the same command goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boxengine.adapters.sql.dialects.postgresql import lock_space
from boxengine.adapters.sql.log.stage import Stage
from boxengine.adapters.sql.shape.tables import reflect
from tests.integration.converting.bench import LOG, TABLE, Bench, bench

_FUNCTION = "CREATE FUNCTION order_items_{}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
PLACES = {
    "the log is made and has no trigger yet": ("prepare", Stage.TABLE, _FUNCTION.format("to_table")),
    "the tables are about to be locked": ("finish_to_log", Stage.BOTH, "LOCK TABLE order_items IN ROW EXCLUSIVE MODE"),
    "a bucket is copied, and the next one is not": ("back", Stage.LOG, "SELECT pg_advisory_xact_lock({space}, 1)"),
    "all buckets are held": ("back", Stage.LOG, "LOCK TABLE order_items_log IN ROW EXCLUSIVE MODE"),
    "the log is about to be dropped": (
        "finish_to_table",
        Stage.BOTH,
        "LOCK TABLE order_items_log IN ACCESS SHARE MODE",
    ),
    "the log is dropped, and the table's trigger is not": (
        "finish_to_table",
        Stage.BOTH,
        "LOCK TABLE order_items IN ACCESS SHARE MODE",
    ),
}
"""For each place the step, the stage it begins at, and a statement whose lock the step needs there."""


@pytest.fixture
def box(postgres_url: str) -> Iterator[Bench]:
    with bench(postgres_url) as made:
        yield made


@pytest.mark.parametrize("place", PLACES)
def test_a_command_that_dies_where(box: Bench, place: str) -> None:
    step, stage, lock = PLACES[place]
    with box.engine.connect() as connection:
        space = lock_space(reflect(connection, box.boxes[TABLE]))
    ids = box.commit(TABLE, *"aabb") + box.commit(TABLE, "c", bucket=1)
    box.bring_to(Stage.LOG)
    ids += box.commit(TABLE, *"abab") + box.commit(LOG, "c", bucket=1)
    if step in ("prepare", "finish_to_table", "finish_to_log"):
        box.conversion().back()
    if step in ("prepare", "finish_to_log"):
        box.conversion().finish_to_table()
        box.bring_to(stage)
    reader = TABLE if stage is Stage.TABLE else LOG
    assert box.deliver(reader, limit=2, buckets=(0,)) == ids[:2]

    with box.engine.connect() as other:
        other.exec_driver_sql(lock.format(space=space))
        with box.waiting(getattr(box.conversion(), step)) as ended:
            box.kill_the_waiting_one()
            assert ended() is not None
    reached = Stage.TABLE if "is dropped" in place else stage
    assert box.stage is reached

    by = TABLE if reached is Stage.TABLE else LOG
    ids += box.commit(by, "a", "b") + box.commit(TABLE, "c", bucket=1)
    getattr(box.conversion(), step)()
    assert box.stage is {"prepare": Stage.BOTH, "finish_to_log": Stage.LOG, "back": Stage.BOTH}.get(step, Stage.TABLE)
    last = TABLE if box.stage is Stage.TABLE else LOG
    ids += box.commit(last, "a", "c", bucket=1)
    sent = ids[:2] + box.deliver(last) + box.deliver(last)
    assert sorted(sent) == sorted(ids)
    assert sent == sorted(sent)
