"""The stores of jobs, for every suite that tests them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.jobs import NAMES, JobHarness, MemoryHarness, SqlHarness
from tests.conftest import ServerLookup
from tests.servers.databases import fresh_mysql_database, fresh_postgres_database

SERVERS = {"postgresql": (fresh_postgres_database, "postgres"), "mysql": (fresh_mysql_database, "mariadb")}


@pytest.fixture(scope="module")
def job_databases(server_lookup: ServerLookup) -> Iterator[Callable[[str], SqlHarness]]:
    """The harness of each server, made at its first use and shared by the tests of a file."""
    made: dict[str, SqlHarness] = {}
    with ExitStack() as stack:

        def harness(name: str) -> SqlHarness:
            if name not in made:
                fresh, server = SERVERS[name]
                made[name] = SqlHarness(stack.enter_context(fresh(server_lookup(server).address)))
            return made[name]

        yield harness


@pytest.fixture(params=NAMES)
def jobs(request: pytest.FixtureRequest, job_databases: Callable[[str], SqlHarness]) -> Iterator[JobHarness]:
    harness = MemoryHarness() if request.param == "memory" else job_databases(request.param)
    yield harness
    harness.close()
