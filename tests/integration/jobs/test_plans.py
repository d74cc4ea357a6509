"""What the statements of long jobs read of a large table that nobody has analysed: the ends of indexes, never all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import dialect

from boxengine.adapters.sql.jobs.ends import _statement
from boxengine.domain.jobs import Beat, Succeeded
from tests.conformance.jobs import BOX, SqlHarness, new

ROWS = 4000


@pytest.fixture(params=["postgres_url", "mysql_url"])
def jobs(request: pytest.FixtureRequest) -> Iterator[SqlHarness]:
    harness = SqlHarness(request.getfixturevalue(request.param))
    if harness.engine.dialect.name == "postgresql":
        numbers, tomorrow = f"generate_series(1, {ROWS})", "now() + interval '1 day'"
    else:
        numbers, tomorrow = f"seq_1_to_{ROWS}", "utc_timestamp(6) + INTERVAL 1 DAY"
    insert = (
        "INSERT INTO report_jobs (task, args, lock_key, waits, status, available_at, finished_at) SELECT 't', '{}',"
    )
    with harness.engine.begin() as connection:
        for values in (
            f"NULL, 1, 'queued', {tomorrow}, NULL",
            f"'k', 2, 'queued', {tomorrow}, NULL",
            f"NULL, 0, 'succeeded', {tomorrow}, {tomorrow}",
        ):
            connection.execute(sa.text(f"{insert} {values} FROM {numbers}".replace(":", "\\:")))
    yield harness
    harness.close()


def test_no_statement_of_a_worker_walks_over_the_table(jobs: SqlHarness) -> None:
    explained = Explaining(jobs.engine)
    made = jobs.create(new(lock_key="k"), new(), new(delay=timedelta(hours=1)))
    jobs.create(new(after=(made[2],)))
    with explained:
        jobs.store.promote(BOX)
        first, second = jobs.store.claim(BOX, 2, worker="w")
        jobs.store.beat(BOX, [Beat(first.held, {"n": 1}), Beat(second.held)])
        jobs.store.unit(BOX, first).checkpoint({"at": 1})
        jobs.store.unit(BOX, first).end(Succeeded())
        jobs.store.reap(BOX)
        jobs.store.backlog(BOX, limit=2 * ROWS)
        jobs.store.delete_finished(BOX)
    assert len(explained.plans) >= 9
    for statement, plan in explained.plans.items():
        assert not explained.walks(plan), f"{statement}\n{plan}"


def test_a_claim_sorts_no_queue_neither_by_priority_nor_by_age(jobs: SqlHarness) -> None:
    postgresql = jobs.engine.dialect.name == "postgresql"
    numbers = f"generate_series(1, {ROWS}) AS seq" if postgresql else f"seq_1_to_{ROWS}"
    ago = "now() - seq * interval '1 second'" if postgresql else "utc_timestamp(6) - INTERVAL seq SECOND"
    with jobs.engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO report_jobs (task, args, priority, status, available_at) "
                f"SELECT 't', '{{}}', seq % 100, 'queued', {ago} FROM {numbers}"
            )
        )
    explained = Explaining(jobs.engine)
    with explained:
        first, *_ = jobs.store.claim(BOX, 3, worker="w", oldest=1)
    assert first.for_age
    plans = [plan for plan in explained.plans.values() if "_ready" in plan or "_due" in plan]
    text = "\n".join(plans)
    assert "report_jobs_ready" in text
    assert "report_jobs_due" in text
    assert not any(explained.sorts(plan) for plan in plans), text


def test_a_look_for_keys_that_nobody_holds_reads_no_queue(jobs: SqlHarness) -> None:
    explained = Explaining(jobs.engine)
    with explained:
        jobs.store.reap(BOX)
    plans = [plan for statement, plan in explained.plans.items() if "holders" in statement]
    assert plans
    assert not any(explained.walks(plan) or explained.sorts(plan) for plan in plans), "\n".join(plans)
    assert len(jobs.store.claim(BOX, 2, worker="w")) == 1


def test_the_plan_that_is_kept_for_ends_tries_no_list_of_ids_on_each_row(postgres_url: str) -> None:
    harness = SqlHarness(postgres_url)
    prepared = _statement(harness.store.rows(BOX), waits=False).compile(dialect=dialect())  # type: ignore[attr-defined,no-untyped-call]
    nothing = ", ".join(["NULL"] * len(prepared.positiontup or ()))
    with harness.engine.connect() as connection:
        # As for a statement that was prepared and executed often: the plan knows no values.
        connection.exec_driver_sql("SET plan_cache_mode = force_generic_plan")
        connection.exec_driver_sql(f"PREPARE ends AS {prepared}")
        plan = "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN EXECUTE ends({nothing})"))
        connection.exec_driver_sql("DEALLOCATE ends")
        connection.exec_driver_sql("RESET plan_cache_mode")
    harness.close()
    assert "Index Cond: (id = held.id)" in plan
    assert "ANY (" not in plan
    assert "Seq Scan on report_jobs" not in plan


class Explaining:
    """While it is open, each statement over the jobs is explained before it runs."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._postgresql = engine.dialect.name == "postgresql"
        self.plans: dict[str, str] = {}

    def __enter__(self) -> None:
        sa.event.listen(self._engine, "before_cursor_execute", self._explain)

    def __exit__(self, *_: object) -> None:
        sa.event.remove(self._engine, "before_cursor_execute", self._explain)

    def walks(self, plan: str) -> bool:
        return (
            "Seq Scan on report_jobs" in plan if self._postgresql else bool(re.search(r"'report_jobs\w*', 'ALL'", plan))
        )

    def sorts(self, plan: str) -> bool:
        """Whether jobs are sorted as they come out of the table."""
        # PostgreSQL's plan puts the few that are found in order, and what it sorts before it locks would be the table.
        return bool(re.search(r"LockRows.*\n.*->  Sort", plan)) if self._postgresql else "filesort" in plan

    def _explain(self, _connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if "report_jobs" in statement and not statement.startswith(("INSERT", "EXPLAIN")):
            own = cursor.connection.cursor()
            own.execute(f"EXPLAIN {statement}", parameters)
            self.plans[statement] = "\n".join(map(str, own.fetchall()))
            own.close()
