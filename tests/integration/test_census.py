"""How many rows of each kind: counted in small tables, bounded and estimated in large ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.census import FIRST, SqlCensus
from boxengine.domain.box import Box
from boxengine.ports import Count, Counts, Precision
from tests.conformance.sql_stores import SqlHarness

ROWS = {0: 30, 1: 20, 2: 400, 3: 10}
TRIED = 12
"""Of the pending rows."""
AT_LEAST, ABOUT = Precision.AT_LEAST, Precision.ABOUT


@pytest.fixture
def store(harness: SqlHarness) -> SqlStore:
    assert isinstance(harness.store, SqlStore)
    return harness.store


@pytest.fixture
def box(harness: SqlHarness, store: SqlStore) -> Box:
    box = harness.make_box()
    seed = harness.insert(box)
    columns = "event_key, bucket, payload, created_at, updated_at"
    uuid = "gen_random_uuid()" if store.engine.dialect.name == "postgresql" else "uuid()"
    numbers = " UNION ALL ".join(f"SELECT {n} AS n" for n in range(400))
    with store.engine.begin() as connection:
        for status, count in ROWS.items():
            errors = f"CASE WHEN n < {TRIED} THEN 1 ELSE 0 END"
            connection.execute(
                sa.text(
                    f"INSERT INTO {box.table} (uuid, {columns}, status, errors_count) SELECT {uuid}, {columns}, {status}, "
                    f"{errors} FROM {box.table}, ({numbers}) AS numbers WHERE id = {seed} AND n < {count}"
                )
            )
        connection.execute(sa.text(f"DELETE FROM {box.table} WHERE id = {seed}"))
    analyze(store, box)
    return box


def analyze(store: SqlStore, box: Box) -> None:
    verb = "ANALYZE" if store.engine.dialect.name == "postgresql" else "ANALYZE TABLE"
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"{verb} {box.table}").close()


def exact(counts: Counts) -> bool:
    return counts == Counts(
        pending=Count(30), retrying=Count(TRIED), failed=Count(20), delivered=Count(400), discarded=Count(10)
    )


def test_a_small_table_is_counted_exactly(store: SqlStore, box: Box) -> None:
    assert exact(SqlCensus(store).take(box))


def test_rows_without_a_status_as_tables_made_elsewhere_allow_are_not_counted(
    harness: SqlHarness, store: SqlStore, box: Box
) -> None:
    change = "ALTER status DROP NOT NULL" if store.engine.dialect.name == "postgresql" else "MODIFY status smallint"
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {box.table} {change}"))
    harness.insert(box, status=None)
    assert exact(SqlCensus(store).take(box))
    assert dict(store.counts(box)) == ROWS


def test_a_large_table_is_counted_exactly_if_asked_for(store: SqlStore, box: Box) -> None:
    assert exact(SqlCensus(store, small=0, limit=1).take_exactly(box))


def test_in_a_large_table_what_is_not_delivered_is_counted_and_the_rest_estimated(store: SqlStore, box: Box) -> None:
    counts = SqlCensus(store, small=0).take(box)
    assert (counts.pending, counts.retrying) == (Count(30), Count(TRIED))
    assert (counts.failed, counts.discarded) == (Count(20), Count(10))
    assert counts.delivered is not None
    assert counts.delivered.precision is ABOUT
    assert 300 < counts.delivered.number < 500


def test_counting_ends_at_its_limit(store: SqlStore, box: Box) -> None:
    counts = SqlCensus(store, small=0, limit=15).take(box)
    assert (counts.pending, counts.failed) == (Count(15, AT_LEAST), Count(15, AT_LEAST))
    assert counts.discarded == Count(10)
    assert counts.retrying is not None
    assert counts.retrying.precision is AT_LEAST


@pytest.mark.parametrize("limit", [29, 19, 9], ids=["pending", "failed", "discarded"])
def test_rows_over_a_limit_are_not_taken_for_delivered_ones(store: SqlStore, box: Box, limit: int) -> None:
    assert SqlCensus(store, small=0, limit=limit).take(box).delivered is None


def test_of_many_pending_rows_those_tried_before_are_counted_at_the_head_of_every_bucket(
    store: SqlStore, box: Box
) -> None:
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {box.table} SET bucket = errors_count WHERE status = 0")
    counts = SqlCensus(store, small=0, limit=10).take(box)
    assert counts.retrying == Count(TRIED, AT_LEAST), "they are in the second bucket"
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {box.table} SET errors_count = 0")
    assert SqlCensus(store, small=0, limit=10).take(box).retrying == Count(0, ABOUT)


def test_a_second_look_asks_neither_for_indexes_nor_for_what_was_over_the_limit(store: SqlStore, box: Box) -> None:
    census, asked = SqlCensus(store, small=0, limit=15), list[str]()
    first = census.take(box)
    sa.event.listen(store.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    assert census.take(box) == first
    assert not [each for each in asked if "pg_index" in each or "SHOW" in each]
    assert [
        each for each in asked if "status = 1" in each or each.startswith("SELECT count(*) FROM (SELECT bucket")
    ] == []
    assert [each for each in asked if "status = 3" in each], "which was not over it"


def test_without_an_index_to_count_by_nothing_is_said_rather_than_the_whole_table_read(
    store: SqlStore, box: Box
) -> None:
    with store.engine.begin() as connection:
        for index in sa.inspect(connection).get_indexes(box.table):
            if "status" in str(index):
                where = "" if connection.dialect.name == "postgresql" else f" ON {box.table}"
                connection.exec_driver_sql(f"DROP INDEX {index['name']}{where}")
    assert nothing_is_said(store, box)


def test_an_index_that_is_not_finished_is_none_to_count_by(store: SqlStore, box: Box) -> None:
    if store.engine.dialect.name != "postgresql":
        return  # it has no concurrent creation
    with store.engine.begin() as connection:
        for index in sa.inspect(connection).get_indexes(box.table):
            connection.exec_driver_sql(
                f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{index['name']}'::regclass"
            )
    assert nothing_is_said(store, box)


def nothing_is_said(store: SqlStore, box: Box) -> bool:
    counts = SqlCensus(store, small=0).take(box)
    unknown = Counts(pending=None, retrying=None, failed=None, delivered=None, discarded=None)
    return counts == unknown and exact(SqlCensus(store).take(box))


def test_an_empty_table_has_none_of_any_kind(harness: SqlHarness, store: SqlStore) -> None:
    empty = Counts(pending=Count(0), retrying=Count(0), failed=Count(0), delivered=Count(0), discarded=Count(0))
    assert SqlCensus(store).take(harness.make_box()) == empty


def test_an_index_of_the_reference_that_begins_with_the_status_serves_too(store: SqlStore, box: Box) -> None:
    with store.engine.begin() as connection:
        for index in sa.inspect(connection).get_indexes(box.table):
            if "status" in str(index):
                where = "" if connection.dialect.name == "postgresql" else f" ON {box.table}"
                connection.exec_driver_sql(f"DROP INDEX {index['name']}{where}")
        connection.exec_driver_sql(f"CREATE INDEX reference ON {box.table} (status, id, bucket)")
    counts = SqlCensus(store, small=0).take(box)
    assert (counts.pending, counts.failed, counts.discarded) == (Count(30), Count(20), Count(10))


def test_no_count_of_a_large_table_reads_it_whole(store: SqlStore, box: Box) -> None:
    if store.engine.dialect.name != "postgresql":
        pytest.skip("on MySQL the index is forced")
    with store.engine.begin() as connection:
        # Statistics that take half of the rows for pending, as after a drain that nobody has looked at yet.
        connection.exec_driver_sql(f"UPDATE {box.table} SET status = 0 WHERE id %% 2 = 0")
    for _ in range(6):
        with store.engine.begin() as connection:
            columns = "event_key, bucket, payload, created_at, updated_at, status"
            connection.exec_driver_sql(
                f"INSERT INTO {box.table} (uuid, {columns}) SELECT gen_random_uuid(), {columns} FROM {box.table}"
            )
    analyze(store, box)
    with store.engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE {box.table} SET status = 2 WHERE status = 0 AND id > 40")
    plans: list[Any] = []

    def explain(connection: sa.Connection, _cursor: object, statement: str, values: Any, *_: object) -> None:
        if "count(*)" in statement and "EXPLAIN" not in statement:
            (plan,) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).one()
            plans.append(plan[0]["Plan"])

    limit = 15
    sa.event.listen(store.engine, "after_cursor_execute", explain)
    SqlCensus(store, small=0, limit=limit).take(box)
    assert len(plans) == 4
    for plan in plans:
        scans = list(scans_of(plan, box.table))
        assert scans
        assert all("Index" in scan["Node Type"] for scan in scans), json.dumps(plan, indent=1)
        read = sum(
            (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans
        )
        assert read <= max(limit + 1, FIRST * box.bucket_size), plan


def scans_of(plan: dict[str, Any], table: str) -> Iterator[dict[str, Any]]:
    """The parts of a plan that read the table."""
    if plan.get("Relation Name") == table:
        yield plan
    for part in plan.get("Plans", []):
        yield from scans_of(part, table)
