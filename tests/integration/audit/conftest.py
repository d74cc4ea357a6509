from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from tests.conformance.sql_stores import mysql, postgresql
from tests.integration.audit.bench import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["postgresql", "mysql"])
def make_bench(request: pytest.FixtureRequest) -> Iterator[MakeBench]:
    """Makes a box with a given policy and an empty table, on PostgreSQL and on MariaDB."""
    make_harness, url = (postgresql, "postgres_url") if request.param == "postgresql" else (mysql, "mysql_url")
    with closing(make_harness(request.getfixturevalue(url))) as harness:
        yield partial(Bench, harness)


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()
