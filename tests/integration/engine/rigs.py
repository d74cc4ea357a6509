"""Rigs on each database in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engine.rig import Rig

DATABASES = {"postgresql": "postgres_url", "mariadb": "mysql_url"}
"""Name to the fixture that gives an empty database."""
ON_POSTGRESQL = pytest.mark.parametrize("database", ["postgresql"], indirect=True)
ON_MARIADB = pytest.mark.parametrize("database", ["mariadb"], indirect=True)
MakeRig = Callable[..., Rig]
"""Makes a rig of a configuration, with its tables unless told otherwise (``tables=False``)."""


@contextmanager
def rigs(folder: Path, *, database: str, redis: str) -> Iterator[MakeRig]:
    """Makes rigs on these servers, and closes them in the end."""
    with ExitStack() as stack:

        def make(*, tables: bool = True, **config: Any) -> Rig:
            rig = stack.enter_context(Rig(folder, database=database, redis=redis, **config))
            if tables:
                rig.create_tables()
            return rig

        yield make
