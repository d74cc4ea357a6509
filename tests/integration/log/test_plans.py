"""The plans of the questions to a log: by the index that is meant, however stale the statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.log.statements import _OF_A_CLAIM, LogStatements
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
SHARES = (10,) * 8
ASKED: Mapping[str, tuple[tuple[Any, ...], set[str]]] = {
    "_next": (SHARES, {XACT, ID}),
    "measure": ((HELD, HELD), {XACT}),
    "measured_rows": ((HELD, HELD, HELD, *SHARES[:2]), {XACT, ID}),
    "_beyond": ((HELD, 10, 10), {XACT}),
    "followed": ((HELD,), {XACT}),
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
            text = f"EXPLAIN (ANALYZE, FORMAT JSON) {text_of(statements, question)}"
            (plan,) = driver.execute(text, values).fetchone()
            scans = [node for node in nodes(plan[0]["Plan"]) if node.get("Relation Name") in LOGS]
            assert scans
            assert {index_of(node) for node in scans if has_met_rows(node)} <= indexes, question
            assert sum(node["Actual Rows"] * node["Actual Loops"] for node in scans) <= 10, question
            assert not any(node.get("Rows Removed by Filter", 0) * node["Actual Loops"] > 10 for node in scans), (
                question
            )


MOVES = 1_000
MOVE_ON = f"""
DO $$ BEGIN FOR i IN 1..{MOVES} LOOP
    UPDATE order_items_positions SET turn = turn + 1 WHERE turn = i - 1; COMMIT;
END LOOP; END $$
"""
MOST_BLOCKS = 8
"""For each look at a bucket's position."""
_PLACES = [[0] * BUCKETS] * 4
OF_A_CLAIM: Mapping[str, tuple[Any, ...]] = {
    "_where": (),
    "_next": SHARES,
    "measure": (HELD, HELD),
    "measured_rows": (HELD, HELD, HELD, *SHARES[:2]),
    "followed": (HELD,),
    "_move": ([*range(BUCKETS)], ["9:9:"] * BUCKETS, [None] * BUCKETS, *_PLACES, [MOVES] * BUCKETS, BUCKETS),
}


@pytest.mark.parametrize("partitions", [None, timedelta(days=1)], ids=str)
def test_no_look_of_a_claim_walks_over_positions_that_died_while_a_transaction_stays_open_elsewhere(
    postgres_url: str, partitions: timedelta | None
) -> None:
    bench = Bench(postgres_url, bucket_size=BUCKETS, strict_order=StrictOrder.KEY, log_partitions=partitions)
    with (
        bench.engine.connect().execution_options(isolation_level="REPEATABLE READ") as elsewhere,
        bench.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        elsewhere.execute(sa.text("SELECT 1"))
        connection.exec_driver_sql(MOVE_ON)
        statements = bench.store._known.statements(bench.box)
        assert isinstance(statements, LogStatements)
        with bench.engine.connect() as claim:
            for name, value in {**_OF_A_CLAIM, "boxengine.held": HELD}.items():
                claim.execute(sa.text("SELECT set_config(:name, :value, true)"), {"name": name, "value": value})
            driver: Any = claim.connection.driver_connection
            driver.execute(statements._where)  # the snapshot, and the lowest transaction
            for question, values in OF_A_CLAIM.items():
                text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text_of(statements, question)}"
                (plan,) = driver.execute(text, values).fetchone()
                looks = [
                    node
                    for node in nodes(plan[0]["Plan"])
                    if node.get("Relation Name") == "order_items_positions" and "Scan" in node["Node Type"]
                ]
                assert looks, question
                for node in looks:
                    blocks = node["Shared Hit Blocks"] + node["Shared Read Blocks"]
                    assert blocks <= MOST_BLOCKS * BUCKETS, (question, blocks)
    bench.engine.dispose()


def text_of(statements: LogStatements, question: str) -> str:
    """Of a claim's statements by attribute, of a look's by its name."""
    return str(getattr(statements._questions, question, None) or getattr(statements, question))


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
