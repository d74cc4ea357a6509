"""The number of buckets in force stands with the table: a store with another one gives nothing out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import orm

from boxengine import OutboxItem
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import checks, schema, sizes, upgrade
from boxengine.domain.box import Box, BoxType, Storage, StrictOrder
from boxengine.errors import SchemaMismatch

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=16)
LARGER = replace(BOX, bucket_size=64)
SMALLER = replace(BOX, bucket_size=8)


@pytest.fixture(params=["postgres_url", "mysql_url"], ids=["postgresql", "mariadb"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    engine = connect(request.getfixturevalue(request.param), connections=2)
    schema.create(engine, [BOX])
    yield engine
    engine.dispose()


def fill(engine: sa.Engine, *buckets: int, status: int = 0, box: Box = BOX) -> None:
    with engine.begin() as connection:
        SqlRows(box).insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": bucket} for bucket in buckets])
        connection.execute(sa.text(f"UPDATE {BOX.table} SET status = {status}"))


def fetch(engine: sa.Engine, query: str) -> Any:
    with engine.connect() as connection:
        return connection.execute(sa.text(query)).scalar_one()


def comment(engine: sa.Engine) -> str | None:
    return sa.inspect(engine).get_table_comment(BOX.table)["text"]


def write_comment(engine: sa.Engine, words: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.schema.SetTableComment(sa.Table(BOX.table, sa.MetaData(), comment=words)))


@pytest.mark.parametrize("other", [LARGER, SMALLER], ids=["larger", "smaller"])
def test_a_store_with_another_size_gives_nothing_out(engine: sa.Engine, other: Box) -> None:
    fill(engine, 3)
    assert sizes.record(engine, [BOX]) == [BOX.name]
    store = SqlStore(engine)
    for look in (
        lambda: store.poll(other, range(16), 10),
        lambda: store.outlook(other, range(16)),
        lambda: store.claims(other).open({3: None}, 10).__enter__(),
    ):
        with pytest.raises(
            SchemaMismatch, match=r"filled with 16: set it back to 16, or .* db rebucket order_outbox_item"
        ):
            look()
    assert [finding.severity for finding in checks.check(engine, [other])] == ["error"]
    assert len(SqlStore(engine).poll(BOX, range(16), 10)) == 1


class LargerBase(orm.DeclarativeBase):
    """Of a mapping of its own."""


class LargerItem(OutboxItem, LargerBase):
    """With a model, whose table is not looked up."""

    __tablename__ = BOX.table


@pytest.mark.parametrize("model", [None, LargerItem], ids=["no model", "model"])
def test_an_application_with_another_size_creates_nothing_until_the_sizes_agree(
    engine: sa.Engine, model: type | None
) -> None:
    sizes.record(engine, [BOX])
    rows, asked = SqlRows(LARGER, model), list[str]()
    row = {"event_key": "k", "payload": b"{}", "bucket": 60}
    for _ in range(2):
        with engine.begin() as connection, pytest.raises(SchemaMismatch, match=r"is 64, .* was filled with 16: set it"):
            rows.insert(connection, [row])
    assert fetch(engine, f"SELECT count(*) FROM {BOX.table}") == 0
    sizes.change(engine, LARGER)
    sa.event.listen(engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: asked.append(statement))
    with engine.begin() as connection:
        rows.insert(connection, [row])
        looks = sum("comment" in statement or "obj_description" in statement for statement in asked)
        asked.clear()
        rows.insert(connection, [row])
    assert looks >= 1
    assert len(asked) == 1  # later items cost what they did before
    assert fetch(engine, f"SELECT count(*) FROM {BOX.table}") == 2


def test_an_application_is_not_asked_for_a_size_where_none_is_recorded(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        SqlRows(LARGER, LargerItem).insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": 60}])
    assert fetch(engine, f"SELECT count(*) FROM {BOX.table}") == 1


def test_where_nothing_is_recorded_every_size_works(engine: sa.Engine) -> None:
    fill(engine, 3)
    assert len(SqlStore(engine).poll(LARGER, range(64), 10)) == 1


def test_a_worker_that_runs_stops_giving_out_when_another_size_comes_into_force(engine: sa.Engine) -> None:
    sizes.record(engine, [BOX])
    store = SqlStore(engine)
    assert store.poll(BOX, range(16), 10) == []
    assert store.look_again() == []
    sizes.change(engine, LARGER)
    assert store.look_again() == [BOX.name]
    with pytest.raises(SchemaMismatch, match="filled with 64"):
        store.poll(BOX, range(16), 10)


def test_the_applications_own_comment_stays(engine: sa.Engine) -> None:
    own = "it's 100% ours; 5 o'clock: :tea"
    write_comment(engine, own)
    sizes.record(engine, [BOX])
    assert comment(engine) == f"{own}; boxengine bucket_size=16"
    sizes.change(engine, LARGER)
    assert comment(engine) == f"{own}; boxengine bucket_size=64"
    assert sizes.without_size(comment(engine)) == own


def test_a_comment_with_no_room_left_is_not_touched(engine: sa.Engine) -> None:
    write_comment(engine, "x" * 2040)
    assert sizes.record(engine, [BOX]) == []
    assert comment(engine) == "x" * 2040


def test_a_recorded_size_is_never_replaced_by_the_way(engine: sa.Engine) -> None:
    sizes.record(engine, [BOX])
    assert sizes.record(engine, [BOX]) == []
    with pytest.raises(SchemaMismatch, match="filled with 16"):
        sizes.record(engine, [LARGER])
    assert comment(engine) == "boxengine bucket_size=16"


def test_the_record_is_no_difference_to_an_upgrade(engine: sa.Engine) -> None:
    sizes.record(engine, [BOX])
    with engine.connect() as connection:
        assert upgrade.plan(connection, [BOX]) == []
    assert checks.check(engine, [BOX]) == []


def test_a_size_is_not_changed_under_pending_items(engine: sa.Engine) -> None:
    sizes.record(engine, [BOX])
    fill(engine, 1, 2)
    for dry in (True, False):
        with pytest.raises(SchemaMismatch, match=r"2 pending items, .* Put back bucket_size: 16"):
            sizes.change(engine, LARGER, dry=dry)
    assert comment(engine) == "boxengine bucket_size=16"
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {BOX.table} SET status = 2"))
    assert sizes.change(engine, LARGER, dry=True) == (16, 64)
    assert comment(engine) == "boxengine bucket_size=16"
    assert sizes.change(engine, LARGER) == (16, 64)
    assert comment(engine) == "boxengine bucket_size=64"
    fill(engine, 63, box=LARGER)  # the lock is gone
    assert SqlStore(engine).poll(LARGER, range(64), 10) != []


def test_failed_items_in_buckets_that_would_be_gone_are_in_the_way(engine: sa.Engine) -> None:
    sizes.record(engine, [BOX])
    fill(engine, 15, 3, status=1)
    with pytest.raises(SchemaMismatch, match="buckets from 8 on hold 1 failed item,"):
        sizes.change(engine, SMALLER)
    assert sizes.change(engine, LARGER) == (16, 64)


def test_a_failed_item_that_parks_its_key_is_in_the_way_of_every_size(engine: sa.Engine) -> None:
    sizes.record(engine, [BOX])
    fill(engine, 3, status=1)
    parked = replace(LARGER, strict_order=StrictOrder.KEY)
    for dry in (True, False):
        with pytest.raises(
            SchemaMismatch, match="1 failed item, which would hold back later items of their keys no longer"
        ):
            sizes.change(engine, parked, dry=dry)
    assert comment(engine) == "boxengine bucket_size=16"


def test_a_writer_that_has_not_committed_is_waited_for(engine: sa.Engine) -> None:
    sizes.record(engine, [BOX])
    with engine.begin() as connection:
        SqlRows(BOX).insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": 1}])
        with pytest.raises(Exception, match="the database"):
            sizes.change(engine, LARGER, patience=1)
    assert comment(engine) == "boxengine bucket_size=16"
    with pytest.raises(SchemaMismatch, match="1 pending item,"):
        sizes.change(engine, LARGER)


def test_an_application_that_writes_to_a_log_is_refused_too(postgres_url: str) -> None:
    engine, box = connect(postgres_url, connections=1), replace(BOX, storage=Storage.LOG)
    schema.create(engine, [box])
    sizes.record(engine, [box])
    with engine.begin() as connection, pytest.raises(SchemaMismatch, match=r"is 64, .* was filled with 16: set it"):
        SqlRows(replace(box, bucket_size=64)).insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": 60}])
    assert fetch(engine, f"SELECT count(*) FROM {BOX.table}_log") == 0
    engine.dispose()
