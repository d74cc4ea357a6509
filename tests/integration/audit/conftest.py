from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.conformance.sql_stores import SqlHarness
from tests.integration.audit.bench import Bench

MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(harness: SqlHarness) -> MakeBench:
    """Makes a box with a given policy and an empty table, on PostgreSQL and on MariaDB."""
    return partial(Bench, harness)


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()
