from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.sql_stores import SqlHarness, mysql, postgresql


@pytest.fixture(params=["postgresql", "mysql"])
def harness(request: pytest.FixtureRequest) -> Iterator[SqlHarness]:
    """A store on each database."""
    opened = (
        postgresql(request.getfixturevalue("postgres_url"))
        if request.param == "postgresql"
        else mysql(request.getfixturevalue("mysql_url"))
    )
    yield opened
    opened.close()
