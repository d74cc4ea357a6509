"""Percent signs in names, which drivers take for the beginning of a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.jobs import schema as job_schema
from boxengine.adapters.sql.jobs import upgrade as job_upgrade
from boxengine.adapters.sql.jobs.insert import SqlNewJobs
from boxengine.adapters.sql.jobs.inspection import SqlJobInspector
from boxengine.adapters.sql.jobs.store import SqlJobs
from boxengine.adapters.sql.making import checks, schema, upgrade
from boxengine.adapters.sql.making.planning import Step
from boxengine.adapters.sql.shape.tables import for_driver, quoted
from boxengine.domain.box import Box, BoxType, Storage, StrictOrder
from boxengine.domain.jobs import JobBox
from boxengine.ports.people.inspection import Towards
from boxengine.ports.people.jobs import JobSearch
from tests.conformance.jobs import new

TABLE = "of %s and 5%%_items"
BOX = Box(
    name="item",
    type=BoxType.OUTBOX,
    table=TABLE,
    bucket_size=2,
    sequence=True,
    key_index=True,
    strict_order=StrictOrder.KEY,
)
LOG = Box(name="item", type=BoxType.OUTBOX, table=TABLE, bucket_size=2, storage=Storage.LOG)
JOBS = JobBox(name="job", table="of %s and 5%%_jobs")


@pytest.fixture(params=["postgres_url", "mysql_url"])
def engine(request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    engine = connect(request.getfixturevalue(request.param), connections=1)
    yield engine
    engine.dispose()


def plan(engine: sa.Engine, box: Box) -> list[Step]:
    with engine.connect() as connection:
        return upgrade.plan(connection, [box]) + job_upgrade.plan(connection, [JOBS], {})


def upgraded(engine: sa.Engine, box: Box) -> set[str]:
    """Upgrades, and returns the names of all tables."""
    assert list(upgrade.apply(engine, plan(engine, box)))
    assert plan(engine, box) == []
    assert checks.check(engine, [box]) + job_schema.check(engine, [JOBS], {}) == []
    return tables(engine)


def tables(engine: sa.Engine) -> set[str]:
    return set(sa.inspect(engine).get_table_names())


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(for_driver(statement))


@pytest.mark.parametrize("box", [BOX, LOG], ids=["table", "log"])
def test_the_steps_of_an_upgrade_make_what_create_makes(engine: sa.Engine, box: Box) -> None:
    postgres = engine.dialect.name == "postgresql"
    if box is LOG and not postgres:
        pytest.skip("a log needs PostgreSQL")
    schema.create(engine, [box])
    job_schema.create(engine, [JOBS], {})
    assert plan(engine, box) == []
    made = tables(engine)
    for name, column in ((TABLE, "available_at"), (JOBS.table, "consumer_group")):
        changes = [f"DROP COLUMN {column}", *(["RESET (autovacuum_vacuum_scale_factor)"] if postgres else [])]
        run(engine, *(f"ALTER TABLE {quoted(engine.dialect, name)} {change}" for change in changes))
    assert upgraded(engine, box) == made
    # All at once: a log's ids come from a sequence of another table.
    run(engine, f"DROP TABLE {', '.join(quoted(engine.dialect, name) for name in made)}")
    assert upgraded(engine, box) == made


def test_jobs_of_a_period_are_found(engine: sa.Engine) -> None:
    job_schema.create(engine, [JOBS], {})
    jobs = SqlJobs(engine)
    with engine.begin() as connection:
        made = SqlNewJobs(JOBS).insert(connection, [new(), new()])
    since = JobSearch(created_from=datetime.now(UTC) - timedelta(hours=1))
    found = SqlJobInspector(jobs).find(JOBS, since, start=None, towards=Towards.NEWER, limit=10)
    assert {row["id"] for row in found.rows} == set(made)
