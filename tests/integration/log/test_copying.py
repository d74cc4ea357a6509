"""Large batches go into a log through COPY, and are delivered like any others."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import event

from boxengine.adapters.sql.dialects.copying import WORTHWHILE
from tests.integration.log.bench import Bench
from tests.integration.log.shared import shared_log

MANY = WORTHWHILE * 2


@pytest.fixture(params=[None, timedelta(hours=1)], ids=["whole", "partitioned"])
def bench(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Bench]:
    bench = Bench(postgres_url, log_partitions=request.param)
    yield bench
    bench.engine.dispose()


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"event_key": f"k{n}", "bucket": n % 2, "payload": b"\x00%d" % n} for n in range(first, first + count)]


def test_a_copied_batch_is_delivered_between_its_neighbours_in_order(bench: Bench) -> None:
    inserts = list[str]()
    event.listen(
        bench.engine,
        "before_cursor_execute",
        lambda _connection, _cursor, statement, *_: inserts.append(statement) if "INSERT" in statement else None,
    )
    ids: list[Any] = [bench.commit("before")]
    assert len(inserts) == 1
    with bench.engine.begin() as connection:
        ids += bench.rows.insert(connection, rows(0, MANY)).ids
    assert len(inserts) == 1, "nothing of the batch was inserted"
    ids.append(bench.commit("after"))
    assert ids == sorted(set(ids))
    assert [key for (key,) in bench.ask("SELECT event_key FROM order_items_log ORDER BY id")] == [
        "before",
        *(f"k{n}" for n in range(MANY)),
        "after",
    ]
    assert bench.take(buckets=(0, 1), limit=2 * MANY, send=2 * MANY, fail=(ids[3],)) == ids
    assert bench.side() == [(ids[3], 0, 1)], "an item of the batch steps aside under its own id"


def test_a_batch_of_a_transaction_that_commits_late_is_delivered_late_and_whole(bench: Bench) -> None:
    with bench.engine.connect() as late, late.begin():
        waiting = list(bench.rows.insert(late, rows(0, MANY)).ids)
        passed = bench.commit("passed")
        assert bench.take(buckets=(0, 1)) == [passed]
    assert bench.take(buckets=(0, 1), limit=2 * MANY, send=2 * MANY) == waiting


def test_a_batch_that_is_rolled_back_leaves_nothing(bench: Bench) -> None:
    with bench.engine.connect() as connection, connection.begin() as transaction:
        bench.rows.insert(connection, rows(0, MANY))
        transaction.rollback()
    assert bench.ask("SELECT count(*) FROM order_items_log") == [(0,)]


def test_each_subscription_gets_a_copied_batch(postgres_url: str) -> None:
    with shared_log(postgres_url) as log:
        with log.engine.begin() as connection:
            ids = list(log.rows.insert(connection, [{**row, "bucket": 0} for row in rows(0, MANY)]).ids)
        assert [log.read(name, limit=2 * MANY) for name in ("billing", "search")] == [ids, ids]
