"""A connection that comes back to the pool."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from psycopg import OperationalError
from sqlalchemy import create_engine

from boxengine.adapters.sql.connecting import engine as engines
from boxengine.errors import JobLost, JobTimeout


@pytest.mark.parametrize("error", [OperationalError, JobLost, JobTimeout])
def test_a_connection_whose_reset_is_broken_off_is_thrown_away_and_nothing_is_logged(error: type[Exception]) -> None:
    """SQLAlchemy would log a traceback for whatever is raised here, and go on."""

    def rollback() -> None:
        raise error

    thrown_away: list[bool] = []
    record = SimpleNamespace(invalidate=lambda: thrown_away.append(True))
    state = SimpleNamespace(terminate_only=False, transaction_was_reset=False)
    engine = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    engines._reset(engine, SimpleNamespace(rollback=rollback), record, state)  # type: ignore[arg-type]
    assert thrown_away == [True]
