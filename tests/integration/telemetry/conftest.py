"""Workers with their observers, metrics and traces, on the session's PostgreSQL and Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.telemetry.site import Site

MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[MakeSite]:
    """Makes a site from a configuration; ``database`` and ``redis`` may name the test's own servers."""
    with ExitStack() as stack:

        def make(*, database: str = postgres_url, redis: str = redis_url, **config: Any) -> Site:
            site = stack.enter_context(Site(tmp_path, database=database, redis=redis, **config))
            site.create_tables()
            return site

        yield make
