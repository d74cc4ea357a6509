"""How the way back to a table reads the log, while writers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.log.stage import Stage
from tests.integration.converting.bench import LOG, Bench

FILL = (
    "INSERT INTO order_items_log (uuid, event_key, bucket, payload) "
    "SELECT gen_random_uuid(), 'k', mod(n, 2), 'x' FROM generate_series(1, 40000) AS n"
)
PASS = "UPDATE order_items_positions SET passed = pg_current_snapshot()"


@pytest.fixture
def box(postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url)
    bench.bring_to(Stage.LOG)
    yield bench
    bench.engine.dispose()


@pytest.mark.parametrize("statistics", [[], ["VACUUM ANALYZE"]], ids=["never analyzed", "analyzed"])
def test_no_copy_reads_what_was_delivered(box: Bench, statistics: list[str]) -> None:
    with box.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in (FILL, PASS, *statistics):
            connection.exec_driver_sql(statement)
    waiting, plans = box.commit(LOG, "a", "b"), list[str]()

    def explain(connection: sa.Connection, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("WITH aside"):
            driver: Any = connection.connection.driver_connection
            plans.append("\n".join(line for (line,) in driver.execute(f"EXPLAIN {statement.replace('%%', '%')}")))

    sa.event.listen(box.engine, "before_cursor_execute", explain)
    box.conversion().back()
    assert box.in_table() == waiting
    assert len(plans) == 3, "one for each bucket, and the last one while writers wait"
    assert not [plan for plan in plans if "Seq Scan on order_items_log" in plan]
