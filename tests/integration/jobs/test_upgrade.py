"""Tables of jobs that an earlier version made are brought to what this one makes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.jobs import schema
from boxengine.adapters.sql.jobs import upgrade as job_upgrade
from boxengine.adapters.sql.jobs.insert import SqlNewJobs
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.making import upgrade
from boxengine.adapters.sql.making.planning import Step
from boxengine.domain.jobs import JobBox
from tests.conformance.jobs import new

BOX = JobBox(name="report_job", table="report_jobs")


@pytest.fixture(params=["postgres_url", "mysql_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    engine = sa.create_engine(request.getfixturevalue(request.param))
    yield engine
    engine.dispose()


def plan(engine: sa.Engine) -> list[Step]:
    with engine.connect() as connection:
        return job_upgrade.plan(connection, [BOX], {})


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_a_table_of_an_earlier_version_gets_what_it_lacks_and_keeps_its_jobs(engine: sa.Engine) -> None:
    schema.create(engine, [BOX], {})
    assert plan(engine) == []
    with engine.begin() as connection:
        SqlNewJobs(BOX).insert(connection, [new(), new()])
    postgres = engine.dialect.name == "postgresql"
    run(
        engine,
        "DROP TABLE report_jobs_after",
        "ALTER TABLE report_jobs DROP COLUMN trace_context, DROP COLUMN cancel_requested",
        "DROP INDEX ix_report_jobs_finished" + ("" if postgres else " ON report_jobs"),
    )
    if postgres:
        run(engine, "ALTER TABLE report_jobs_events RESET (fillfactor)")
    steps = plan(engine)
    assert [(step.table, step.purpose) for step in steps] == [
        ("report_jobs", "add the column cancel_requested"),
        ("report_jobs", "add the column trace_context"),
        ("report_jobs", "make the index ix_report_jobs_finished"),
        *([("report_jobs_events", "autovacuum settings for a table whose rows change often")] if postgres else []),
        *([("report_jobs_after", "make the table")] * (4 if postgres else 3)),
    ]
    assert plan(engine) == steps, "planning changes nothing"
    assert all(("CONCURRENTLY" in step.sql) is (postgres and "the index" in step.purpose) for step in steps)
    assert list(upgrade.apply(engine, steps)) == steps
    assert plan(engine) == []
    assert schema.check(engine, [BOX], {}) == []
    store = SqlJobs(engine)
    assert [job.id for job in store.claim(BOX, 5, worker="w")] == [1, 2]


def test_a_box_without_tables_gets_all_of_them_as_db_create_makes_them(engine: sa.Engine) -> None:
    steps = plan(engine)
    assert sorted(step.sql for step in steps) == sorted(schema.ddl(engine.dialect.name, [BOX], {}))
    assert [step.table for step in steps if step.creates_table] == [
        "report_jobs",
        "report_jobs_events",
        "report_jobs_schedules",
        "report_jobs_after",
    ]
    list(upgrade.apply(engine, steps))
    assert plan(engine) == []
    assert schema.check(engine, [BOX], {}) == []


def test_what_a_broken_off_index_left_behind_is_made_anew(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    try:
        schema.create(engine, [BOX], {})
        run(engine, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ux_report_jobs_holds'::regclass")
        (finding,) = schema.check(engine, [BOX], {})
        assert finding.severity == "error"
        assert finding.message.startswith("index ux_report_jobs_holds is not finished")
        steps = plan(engine)
        assert [step.purpose for step in steps] == [
            "drop what an attempt left of ux_report_jobs_holds",
            "make the index ux_report_jobs_holds",
        ]
        list(upgrade.apply(engine, steps))
        assert plan(engine) == []
    finally:
        engine.dispose()


def test_a_table_without_transactions_is_an_error(mysql_url: str) -> None:
    engine = sa.create_engine(mysql_url)
    schema.create(engine, [BOX], {})
    run(engine, "ALTER TABLE report_jobs_events ENGINE = Aria")
    (finding,) = schema.check(engine, [BOX], {})
    assert finding.severity == "error"
    assert finding.message.startswith("table report_jobs_events has the storage engine Aria, without transactions")
    engine.dispose()


def test_a_table_that_was_converted_to_a_collation_without_case_is_an_error(mysql_url: str) -> None:
    engine = sa.create_engine(mysql_url)
    schema.create(engine, [BOX], {})
    assert schema.check(engine, [BOX], {}) == []
    run(engine, "ALTER TABLE report_jobs CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")
    (finding,) = schema.check(engine, [BOX], {})
    assert finding.severity == "error"
    assert "lock_key and holds have the collation utf8mb4_unicode_ci" in finding.message
    engine.dispose()
