from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from boxengine.engine.jobs import listener as jobs_listener
from boxengine.engine.polling import listener as polling_listener
from tests.conformance.sql_stores import SqlHarness, mysql, postgresql


@pytest.fixture(autouse=True, scope="module")
def listeners_stop_soon() -> Iterator[None]:
    """Let a worker in this process stop at once: it waits for its listener, whose turn takes up to a second."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (polling_listener, jobs_listener):
            patch.setattr(module, "WAIT", timedelta(seconds=0.05))
        yield


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
