"""A rig on the session's PostgreSQL and Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine.rig import Rig

MakeRig = Callable[..., Rig]


@pytest.fixture
def make_rig(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[MakeRig]:
    """Makes a rig of a configuration, with its tables unless told otherwise."""
    with ExitStack() as stack:

        def make(*, tables: bool = True, **config: Any) -> Rig:
            rig = stack.enter_context(Rig(tmp_path, database=postgres_url, redis=redis_url, **config))
            if tables:
                rig.create_tables()
            return rig

        yield make
