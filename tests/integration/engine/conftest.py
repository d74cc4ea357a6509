"""A rig on the session's servers: on each database in turn, unless a test or its module is marked for one database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine.rigs import DATABASES, MakeRig, rigs


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> str:
    """URL of an empty database."""
    url: str = request.getfixturevalue(DATABASES[request.param])
    return url


@pytest.fixture
def make_rig(tmp_path: Path, database: str, redis_url: str) -> Iterator[MakeRig]:
    with rigs(tmp_path, database=database, redis=redis_url) as make:
        yield make
