"""The plans of the hot statements on PostgreSQL: served by the partial index alone, however stale the statistics.

After a big drain the planner still believes the table to be full of pending rows, and is tempted to walk the primary
key, or the whole table, through all that is delivered (NUMBERS).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import product
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.delivering.bounding import first_stops
from boxengine.adapters.sql.dialects.postgresql import PostgresStatements
from boxengine.adapters.sql.dialects.postgresql_reads import ONE_PLAN
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.shape.tables import reflect
from boxengine.domain.box import Backoff, Box, BoxType, StrictOrder

ROWS = 50_000
BUCKETS = 16
NAME = "order_outbox_items"
FILL = f"""
INSERT INTO {NAME} (uuid, event_key, bucket, payload, status)
SELECT gen_random_uuid(), 'k' || n, mod(n, {BUCKETS}), 'x', :status FROM generate_series(1, {ROWS}) AS n
"""
STALE: dict[str, list[str]] = {
    "analyzed when all were pending, then all delivered": [
        FILL.replace(":status", "0"),
        f"ANALYZE {NAME}",
        f"UPDATE {NAME} SET status = 2, processed_at = now()",
    ],
    "analyzed when empty, then filled and delivered": [f"ANALYZE {NAME}", FILL.replace(":status", "2")],
    "never analyzed": [FILL.replace(":status", "2")],
    "analyzed when all were delivered": [FILL.replace(":status", "2"), f"ANALYZE {NAME}"],
    "delivered and vacuumed": [FILL.replace(":status", "2"), f"VACUUM ANALYZE {NAME}"],
}
BACKLOG: dict[str, list[str]] = {
    "all pending, never analyzed": [FILL.replace(":status", "0")],
    "all pending, analyzed": [FILL.replace(":status", "0"), f"ANALYZE {NAME}"],
}
A_FEW_PENDING = f"""
INSERT INTO {NAME} (uuid, event_key, bucket, payload, errors_count, processed_at)
SELECT gen_random_uuid(), 'k' || n, mod(n, {BUCKETS}), 'x', mod(n, 2), now() - interval '1 day' FROM generate_series(1, 20) AS n
"""
TYPES = {
    "": "int[], bigint[], bigint",
    "_behind": "int[], bigint[], bigint, bigint[], int[], bigint",
    "_deliver": "bigint[]",
    "_fail": "bigint[], int[], int[], text[]",
}
STATEMENTS = ("poll", "poll_regular", "outlook", "read", "remove")
MODES = ("force_custom_plan", "force_generic_plan")
SERVED_BY = {f"ix_{NAME}_{purpose}" for purpose in ("pending", "troubled", "delayed")}
BY_ID = f"{NAME}_pkey"


def make_box(strict_order: StrictOrder = StrictOrder.NONE) -> Box:
    return Box(
        name="order_outbox_item",
        type=BoxType.OUTBOX,
        table=NAME,
        bucket_size=BUCKETS,
        strict_order=strict_order,
        backoff=Backoff(),
    )


class Planner:
    """One box's table, and what PostgreSQL does for the statements over it."""

    def __init__(self, url: str) -> None:
        self.dsn = url.replace("+psycopg", "")
        self.engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")

    def prepare(self, box: Box, history: list[str]) -> None:
        schema.create(self.engine, [box])
        self.run(f"ALTER TABLE {NAME} SET (autovacuum_enabled = false)", *history, A_FEW_PENDING)

    def run(self, *statements: str) -> None:
        with self.engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def explain(self, box: Box, statement: str, *, mode: str, limit: int = 12) -> list[dict[str, Any]]:
        """All nodes of the plan that a fresh connection uses, executed."""
        with self.prepared(box, statement, {"plan_cache_mode": mode}) as fresh:
            return explained(fresh, limit=limit)

    @contextmanager
    def prepared(self, box: Box, statement: str, settings: Mapping[str, str]) -> Iterator[psycopg.Connection[Any]]:
        """A fresh connection, with these settings, that knows the statement as ``hot``."""
        with self.engine.connect() as connection:
            statements = PostgresStatements(reflect(connection, box), idle_timeout_ms=60_000)
        way, _, name = statement.rpartition(".")
        sql = getattr(
            getattr(statements, way or "_from_start") if name in (*STATEMENTS, "oldest") else statements, name
        )
        sql = sql.replace("%s", "${}").format(*range(1, 7)).replace("%%", "%")
        types = TYPES[name] if name in TYPES else TYPES[way]
        with psycopg.connect(self.dsn, autocommit=True) as fresh:
            for name, value in {**settings, "boxengine.held": as_array(range(BUCKETS))}.items():
                fresh.execute("SELECT set_config(%s, %s, false)", [name, value])
            fresh.execute(f"PREPARE hot ({types}) AS {sql}".encode())
            yield fresh

    def close(self) -> None:
        self.engine.dispose()


def explained(connection: psycopg.Connection[Any], *, limit: int = 12) -> list[dict[str, Any]]:
    """All nodes of the plan of ``hot``, executed and undone: other plans are to find the same rows."""
    call = f"EXECUTE hot ('{as_array(range(BUCKETS))}', '{as_array([0] * BUCKETS)}', {limit})"
    with connection.transaction(force_rollback=True):
        return nodes_of(connection, call)


def explained_behind(connection: psycopg.Connection[Any], *, bound: int, limit: int = 12) -> list[dict[str, Any]]:
    """The same while bounds are in use."""
    buckets, after = as_array(range(BUCKETS)), as_array([bound] * BUCKETS)
    call = f"EXECUTE hot ('{buckets}', '{after}', {limit}, '{after}', '{buckets}', {limit})"
    with connection.transaction(force_rollback=True):
        return nodes_of(connection, call)


def nodes_of(connection: psycopg.Connection[Any], call: str) -> list[dict[str, Any]]:
    (plan,) = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}".encode()).fetchone() or ("[]",)
    return list(nodes((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]))


def as_array(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


@pytest.fixture
def planner(postgres_url: str) -> Iterator[Planner]:
    planner = Planner(postgres_url)
    yield planner
    planner.close()


def check(plan: list[dict[str, Any]], *, rows: int) -> None:
    """Only the partial indexes touch the table, and nothing is sorted or read beyond what is asked for.

    What is deleted is looked up by its ids, which the partial indexes have found.
    """
    for node in plan:
        described = f"{node['Node Type']} {node.get('Index Name', '')}"
        if node["Node Type"] in {"ModifyTable", "Bitmap Heap Scan"}:
            continue
        if node.get("Index Cond", "").startswith("(id = ANY ("):
            assert node["Index Name"] == BY_ID, described
        elif node.get("Relation Name") == NAME or node.get("Index Name"):
            assert node.get("Index Name") in SERVED_BY, described
        if "Sort" in node["Node Type"]:
            assert node["Actual Rows"] <= rows, described
        read = node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
        assert read <= 2 * rows, f"{described} reads {read} rows"
    assert any(node.get("Index Name") in SERVED_BY for node in plan)


@pytest.mark.parametrize("history", STALE)
def test_a_few_pending_rows_among_many_delivered_are_found_by_the_partial_index(planner: Planner, history: str) -> None:
    box = make_box()
    planner.prepare(box, STALE[history])
    for statement, mode in product(STATEMENTS, MODES):
        check(planner.explain(box, statement, mode=mode), rows=20 * BUCKETS)


@pytest.mark.parametrize("history", BACKLOG)
def test_of_a_long_backlog_only_what_is_asked_for_is_read(planner: Planner, history: str) -> None:
    box = make_box()
    planner.prepare(box, BACKLOG[history])
    for statement, mode in product(STATEMENTS, MODES):
        check(planner.explain(box, statement, mode=mode), rows=(12 + 2) * BUCKETS)


@pytest.mark.parametrize("order", [StrictOrder.BUCKET, StrictOrder.KEY])
def test_strict_order_is_served_by_the_partial_indexes_too(planner: Planner, order: StrictOrder) -> None:
    box = make_box(order)
    planner.prepare(box, STALE["analyzed when all were pending, then all delivered"])
    for statement, mode in product(STATEMENTS, MODES):
        check(planner.explain(box, statement, mode=mode), rows=20 * BUCKETS)


@pytest.mark.parametrize("order", StrictOrder)
@pytest.mark.parametrize("emptied", ["never analyzed", "analyzed", "vacuumed"])
def test_the_plan_that_a_claim_keeps_serves_a_full_table_though_made_for_an_empty_one(
    planner: Planner, order: StrictOrder, emptied: str
) -> None:
    box = make_box(order)
    schema.create(planner.engine, [box])
    planner.run(f"ALTER TABLE {NAME} SET (autovacuum_enabled = false)")
    planner.run(
        *{"never analyzed": [], "analyzed": [f"ANALYZE {NAME}"], "vacuumed": [f"VACUUM ANALYZE {NAME}"]}[emptied]
    )
    with planner.prepared(box, "read", ONE_PLAN) as reading, planner.prepared(box, "remove", ONE_PLAN) as removing:
        claims = (reading, removing)
        for each in claims:
            explained(each)
        planner.run(FILL.replace(":status", "2"), A_FEW_PENDING)
        for each in claims:
            check(explained(each), rows=20 * BUCKETS)
        planner.run(FILL.replace(":status", "0"))
        for each in claims:
            check(explained(each), rows=(12 + 2) * BUCKETS)


DELAYED = f"""
INSERT INTO {NAME} (uuid, event_key, bucket, payload, available_at)
SELECT gen_random_uuid(), 'k' || n, mod(n, {BUCKETS}), 'x', now() + CASE WHEN mod(n, 5000) = 0 THEN -1 ELSE n END * interval '1 s'
FROM generate_series(1, {ROWS}) AS n
"""


@pytest.mark.parametrize("statistics", ["of an empty table", "of now"])
def test_behind_bounds_no_row_that_was_delayed_and_is_not_due_is_read(planner: Planner, statistics: str) -> None:
    box = make_box()
    first, then = ([f"ANALYZE {NAME}"], []) if statistics == "of an empty table" else ([], [f"ANALYZE {NAME}"])
    planner.prepare(box, [*first, FILL.replace(":status", "2"), DELAYED])
    planner.run(*then)
    for statement, mode in product((*STATEMENTS, "oldest"), MODES):
        with planner.prepared(box, f"_behind.{statement}", {"plan_cache_mode": mode}) as fresh:
            plan = explained_behind(fresh, bound=2 * ROWS)
        check(plan, rows=20 * BUCKETS)
        used = {node["Index Name"] for node in plan if "Index Name" in node}
        assert used >= {f"ix_{NAME}_{purpose}" for purpose in ("pending", "delayed")}


@pytest.mark.parametrize("emptied", ["never analyzed", "analyzed", "vacuumed"])
def test_the_plan_that_a_claim_keeps_reads_no_row_that_is_not_due_behind_bounds(planner: Planner, emptied: str) -> None:
    box = make_box()
    schema.create(planner.engine, [box])
    planner.run(f"ALTER TABLE {NAME} SET (autovacuum_enabled = false)")
    planner.run(
        *{"never analyzed": [], "analyzed": [f"ANALYZE {NAME}"], "vacuumed": [f"VACUUM ANALYZE {NAME}"]}[emptied]
    )
    with (
        planner.prepared(box, "_behind.read", ONE_PLAN) as reading,
        planner.prepared(box, "_behind.remove", ONE_PLAN) as removing,
    ):
        for each in (reading, removing):
            explained_behind(each, bound=0)
        planner.run(DELAYED)
        for each in (reading, removing):
            check(explained_behind(each, bound=2 * ROWS), rows=20 * BUCKETS)


def test_what_no_bound_may_pass_is_found_by_partial_indexes(planner: Planner) -> None:
    box = make_box(StrictOrder.KEY)
    planner.prepare(box, STALE["analyzed when all were pending, then all delivered"])
    with planner.engine.connect() as connection:
        sql = first_stops(reflect(connection, box)).replace("%s", "${}").format(1, 2, 3)
    start, end = (as_array([number] * BUCKETS) for number in (0, 2 * ROWS))
    with psycopg.connect(planner.dsn, autocommit=True) as fresh:
        fresh.execute(f"PREPARE hot (int[], bigint[], bigint[]) AS {sql}".encode())
        for mode in MODES:
            fresh.execute(f"SET plan_cache_mode = {mode}".encode())
            plan = nodes_of(fresh, f"EXECUTE hot ('{as_array(range(BUCKETS))}', '{start}', '{end}')")
            used = {node["Index Name"] for node in plan if node.get("Relation Name") == NAME}
            assert used == {f"ix_{NAME}_{purpose}" for purpose in ("pending", "failed")}


@pytest.mark.parametrize("outcome", ["_deliver", "_fail"])
def test_outcomes_are_written_by_id_in_a_table_that_was_empty_when_they_were_planned(
    planner: Planner, outcome: str
) -> None:
    box = make_box()
    schema.create(planner.engine, [box])
    planner.run(f"ALTER TABLE {NAME} SET (autovacuum_enabled = false)", f"VACUUM ANALYZE {NAME}")
    with planner.prepared(box, outcome, ONE_PLAN) as connection:
        others = ", '{0,1,0}', '{1,6,1}', '{a,b,c}'" if outcome == "_fail" else ""
        call = f"EXECUTE hot ('{{1,2,3}}'{others})"
        connection.execute(call.encode())
        planner.run(FILL.replace(":status", "0"))
        plan = nodes_of(connection, call)
    assert [
        node["Index Name"] for node in plan if node.get("Relation Name") == NAME and "Scan" in node["Node Type"]
    ] == [BY_ID]
