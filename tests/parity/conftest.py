"""Each parity test runs on every database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import DATABASES, MakeRig, rigs
from tests.parity.harness import Spy


@pytest.fixture(params=DATABASES)
def make_rig(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str) -> Iterator[MakeRig]:
    with rigs(tmp_path, database=request.getfixturevalue(DATABASES[request.param]), redis=redis_url) as make:
        yield make


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """One outbox box with four buckets, no retries."""
    return make_rig()


@pytest.fixture
def spy(redis_url: str) -> Iterator[Spy]:
    with Redis.from_url(redis_url) as client:
        yield Spy(client)
