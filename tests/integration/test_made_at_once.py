"""Containers that a deployment starts at the same time may each begin with ``boxengine db create``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.jobs import schema as job_schema
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType
from boxengine.domain.jobs import JobBox
from tests.eventually import eventually

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=4)
JOBS = JobBox(name="report_job", table="report_jobs")
WAITING = {
    "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    "mysql": "SELECT count(*) FROM information_schema.processlist WHERE state LIKE '%lock%' AND id <> connection_id()",
}
Make = Callable[[sa.Engine], list[str]]


@pytest.fixture(params=["postgres_url", "mysql_url"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def engines(url: str) -> Iterator[list[sa.Engine]]:
    made = [sa.create_engine(url) for _ in range(3)]
    yield made
    for engine in made:
        engine.dispose()


@pytest.mark.parametrize(
    "make",
    [lambda engine: schema.create(engine, [BOX]), lambda engine: job_schema.create(engine, [JOBS], {})],
    ids=["items", "jobs"],
)
def test_the_second_run_waits_for_the_first_and_finds_the_tables(engines: list[sa.Engine], make: Make) -> None:
    first, second, watcher = engines
    under_way, go_on = threading.Event(), threading.Event()

    def hold(_connection: sa.Connection, _cursor: object, statement: str, *_rest: object) -> None:
        if "CREATE TABLE" in statement:
            under_way.set()
            go_on.wait()

    sa.event.listen(first, "after_cursor_execute", hold)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(make, first)
        under_way.wait()
        other = threads.submit(make, second)
        try:
            eventually(lambda: other.done() or waits(watcher))
        finally:
            go_on.set()
        assert one.result()
        assert other.result() == []


def waits(engine: sa.Engine) -> bool:
    with engine.connect() as connection:
        return bool(connection.exec_driver_sql(WAITING[engine.dialect.name].replace("%", "%%")).scalar())
