"""A pool that was disposed of keeps no connection open, whenever those that were out come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.connecting.pool import DisposablePool


class Site:
    """An engine, and which of its connections are open."""

    def __init__(self) -> None:
        self.engine = sa.create_engine("sqlite://", poolclass=DisposablePool)
        self.open: set[int] = set()
        sa.event.listen(self.engine, "connect", lambda driver, _record: self.open.add(id(driver)))
        sa.event.listen(self.engine, "close", lambda driver, _record: self.open.discard(id(driver)))


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.engine.dispose()


def test_a_connection_that_comes_back_after_its_pool_was_disposed_of_is_closed(site: Site) -> None:
    with site.engine.connect():
        site.engine.dispose()
    assert site.open == set()


def test_so_is_one_that_is_on_its_way_back_at_that_moment(site: Site) -> None:
    @sa.event.listens_for(site.engine, "checkin", once=True)
    def dispose(*_: Any) -> None:
        site.engine.dispose()

    with site.engine.connect():
        pass
    assert site.open == set()


def test_the_pool_that_takes_its_place_keeps_connections(site: Site) -> None:
    site.engine.dispose()
    with site.engine.connect() as connection:
        first = connection.connection.dbapi_connection
    with site.engine.connect() as connection:
        assert connection.connection.dbapi_connection is first


@pytest.mark.parametrize("url", ["postgresql://nobody@localhost/none", "mysql://nobody@localhost/none"])
def test_the_engines_of_a_worker_have_it(url: str) -> None:
    assert type(connect(url, connections=1).pool) is DisposablePool
