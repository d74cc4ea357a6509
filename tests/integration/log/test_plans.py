"""The plans of the questions to a log: by the index that is meant, however stale the statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.log.statements import LogStatements
from boxengine.domain.box import StrictOrder
from tests.integration.log.bench import Bench

BUCKETS = 8
ROWS = 40_000
XACT, ID = "by transaction", "by id"
INDEXES = {
    "ix_order_items_log_xact": XACT,
    "ix_order_items_log_id": ID,
    # Of a partition, as PostgreSQL calls them.
    "order_items_log_p0_bucket_xact_id_idx": XACT,
    "order_items_log_p0_expr_id_idx": ID,
}
LOGS = frozenset({"order_items_log", "order_items_log_p0", "order_items_log_default"})
FILL = f"""
INSERT INTO order_items_log (uuid, event_key, bucket, payload)
SELECT gen_random_uuid(), 'k' || n, mod(n, {BUCKETS}), 'x' FROM generate_series(1, {ROWS}) AS n
"""
PASS = "UPDATE order_items_positions SET passed = pg_current_snapshot()"
STALE: Mapping[str, list[str]] = {
    "never analyzed": [FILL, PASS],
    "analyzed when empty": ["ANALYZE order_items_log", FILL, PASS],
    "analyzed": [FILL, PASS, "ANALYZE order_items_log"],
    "vacuumed": [FILL, PASS, "VACUUM ANALYZE order_items_log"],
}
HELD = "{0,1,2,3,4,5,6,7}"
SHARES = (10, 10, 10, 10)
ASKED: Mapping[str, tuple[tuple[Any, ...], set[str]]] = {
    "_next": (SHARES, {XACT, ID}),
    "_measure": ((HELD,), {XACT}),
    "_measured": ((HELD, HELD, HELD, *SHARES[:2]), {XACT, ID}),
    "_beyond": ((HELD, 10, 10), {XACT}),
    "_waiting_buckets": ((HELD,), {XACT}),
}


@pytest.fixture(
    params=[*((each, None) for each in STALE), *((each, timedelta(days=1)) for each in ("never analyzed", "vacuumed"))],
    ids=str,
)
def stale(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Bench]:
    statistics, partitions = request.param
    bench = Bench(postgres_url, bucket_size=BUCKETS, strict_order=StrictOrder.KEY, log_partitions=partitions)
    with bench.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in STALE[statistics]:
            connection.exec_driver_sql(statement)
    for _ in range(3):
        bench.commit()
    yield bench
    bench.engine.dispose()


def test_no_question_walks_over_what_was_delivered(stale: Bench) -> None:
    statements = stale.store._known.statements(stale.box)
    assert isinstance(statements, LogStatements)
    with stale.engine.connect() as connection:
        connection.execute(
            sa.text(
                f"SELECT set_config('boxengine.held', '{HELD}', true), "
                "set_config('boxengine.snapshot', pg_current_snapshot()::text, true), "
                "set_config('boxengine.lowest', (SELECT pg_snapshot_xmin(passed)::text FROM order_items_positions LIMIT 1), true)"
            )
        )
        driver: Any = connection.connection.driver_connection
        for question, (values, indexes) in ASKED.items():
            text = f"EXPLAIN (ANALYZE, FORMAT JSON) {getattr(statements, question)}"
            (plan,) = driver.execute(text, values).fetchone()
            scans = [node for node in nodes(plan[0]["Plan"]) if node.get("Relation Name") in LOGS]
            assert scans
            assert {index_of(node) for node in scans if has_met_rows(node)} <= indexes, question
            assert sum(node["Actual Rows"] * node["Actual Loops"] for node in scans) <= 10, question
            assert not any(node.get("Rows Removed by Filter", 0) * node["Actual Loops"] > 10 for node in scans), (
                question
            )


def has_met_rows(node: Mapping[str, Any]) -> bool:
    """An empty partition may be read as a whole."""
    return bool(node["Actual Loops"] and (node["Actual Rows"] or node.get("Rows Removed by Filter")))


def index_of(node: Mapping[str, Any]) -> object:
    """A bitmap is made by another node, below the one that reads the table."""
    below = node["Plans"][0] if node["Node Type"] == "Bitmap Heap Scan" else node
    return INDEXES.get(str(below.get("Index Name")))


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)
