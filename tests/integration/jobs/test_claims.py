"""A claim on PostgreSQL takes jobs without a ``lock_key`` in one statement, and those with one in steps behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.errors import StoreUnavailable
from tests.conformance.jobs import SqlHarness, claim, new


@pytest.fixture
def jobs(postgres_url: str) -> Iterator[SqlHarness]:
    harness = SqlHarness(postgres_url)
    yield harness
    harness.close()


def lose_the_connection_in_steps(jobs: SqlHarness) -> None:
    """Once."""
    lost: list[int] = []

    def cut(connection: Any, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("SET LOCAL idle_in_transaction") and not lost:
            lost.append(connection.connection.driver_connection.info.backend_pid)
            with jobs.engines[1].begin() as other:
                other.execute(sa.text(f"SELECT pg_terminate_backend({lost[0]}, 30000)"))

    sa.event.listen(jobs.engine, "before_cursor_execute", cut)


def test_what_a_claim_has_taken_is_kept_if_the_connection_is_lost_on_the_way_to_more(jobs: SqlHarness) -> None:
    plain, keyed = jobs.create(new(), new(lock_key="k"))
    lose_the_connection_in_steps(jobs)
    assert [job.id for job in claim(jobs)] == [plain]
    assert [job.id for job in claim(jobs)] == [keyed]


def test_a_claim_that_has_taken_nothing_says_that_the_connection_is_lost(jobs: SqlHarness) -> None:
    (keyed,) = jobs.create(new(lock_key="k"))
    lose_the_connection_in_steps(jobs)
    with pytest.raises(StoreUnavailable):
        claim(jobs)
    assert [job.id for job in claim(jobs)] == [keyed]
