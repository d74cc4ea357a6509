"""A wake-up goes out after the outermost commit, whoever commits, and never after a rollback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType
from boxengine.errors import QueueUnavailable
from boxengine.ports import Signal

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=4)


class Site:
    """A table, and a receiver of signals that counts the rows that anybody else can see at that moment."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = connect(url, connections=2)
        schema.create(self.engine, [BOX])
        self.seen: list[int] = []
        """Committed rows, at each signal."""
        self.signals: list[Signal] = []
        self.rows = SqlRows(BOX, signal=self.receive)

    def receive(self, signals: list[Signal]) -> None:
        with self.engine.connect() as other:
            self.seen.append(other.execute(sa.text(f"SELECT count(*) FROM {BOX.table}")).scalar_one())
        self.signals += signals

    def create(self, session: Any, bucket: int = 1) -> None:
        self.rows.insert(session, [{"event_key": "k", "payload": b"{}", "bucket": bucket}])


@pytest.fixture(params=["postgres_url", "mysql_url"], ids=["postgresql", "mariadb"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(request.getfixturevalue(request.param))
    yield site
    site.engine.dispose()


def test_with_a_session_the_row_is_there_when_the_signal_comes(site: Site) -> None:
    with Session(site.engine) as session, session.begin():
        site.create(session)
        assert site.seen == []
    assert site.seen == [1]


def test_with_a_connection_the_row_is_there_when_the_signal_comes(site: Site) -> None:
    with site.engine.connect() as connection:
        site.create(connection)
        assert site.seen == []
        connection.commit()
        assert site.seen == [1]
        site.create(connection)
        connection.commit()
    with site.engine.begin() as connection:
        site.create(connection)
    assert site.seen == [1, 2, 3]


def test_a_savepoint_sends_nothing_and_the_outermost_commit_everything_once(site: Site) -> None:
    with Session(site.engine) as session:
        with session.begin_nested():
            site.create(session, bucket=1)
        with session.begin_nested():
            site.create(session, bucket=2)
            site.create(session, bucket=2)
        assert site.seen == []
        session.commit()
    assert site.seen == [3]
    assert site.signals == [Signal(BOX.name, 1), Signal(BOX.name, 2)]


def test_after_a_rollback_nothing_is_sent_not_even_by_the_next_commit(site: Site) -> None:
    with Session(site.engine) as session:
        site.create(session)
        session.rollback()
        session.execute(sa.text("SELECT 1"))
        session.commit()
    with site.engine.connect() as connection:
        site.create(connection)
        connection.rollback()
        connection.execute(sa.text("SELECT 1"))
        connection.commit()
        site.create(connection)
    assert site.signals == []


def test_a_transaction_after_a_rollback_sends_its_own_signals_and_no_others(site: Site) -> None:
    with site.engine.connect() as connection:
        site.create(connection, bucket=1)
        connection.rollback()
        site.create(connection, bucket=2)
        connection.commit()
    assert site.signals == [Signal(BOX.name, 2)]


@pytest.mark.parametrize("mode", ["conditional_savepoint", "rollback_only", "create_savepoint"])
def test_a_session_that_joined_a_transaction_sends_when_that_is_committed(site: Site, mode: Any) -> None:
    with site.engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode=mode) as session:
            site.create(session)
            session.commit()
        assert site.seen == []
        outer.commit()
    assert site.seen == [1]


def test_a_session_in_control_of_a_foreign_transaction_sends_at_its_own_commit(site: Site) -> None:
    with site.engine.connect() as connection:
        connection.begin()
        with Session(connection, join_transaction_mode="control_fully") as session:
            site.create(session)
            session.commit()
        assert site.seen == [1]


def test_a_test_that_rolls_the_outer_transaction_back_sends_nothing(site: Site) -> None:
    with site.engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            site.create(session)
            session.commit()
        outer.rollback()
    assert site.signals == []


@pytest.mark.parametrize("how", ["option", "engine"])
def test_an_autocommit_connection_sends_at_once(site: Site, how: str) -> None:
    engine = site.engine
    if how == "engine":
        engine = sa.create_engine(site.url, isolation_level="AUTOCOMMIT")
    else:
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        site.create(connection)
        assert site.seen == [1]
    engine.dispose()


def test_a_commit_that_fails_sends_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_connection: Any) -> None:
        raise site.engine.dialect.loaded_dbapi.OperationalError("gone")

    with site.engine.connect() as connection:
        site.create(connection)
        with monkeypatch.context() as broken:
            broken.setattr(site.engine.dialect, "do_commit", refuse)
            with pytest.raises(sa.exc.OperationalError):
                connection.commit()
    assert site.signals == []


def test_a_signal_that_cannot_be_sent_does_not_harm_the_commit(site: Site) -> None:
    def unavailable(_signals: list[Signal]) -> None:
        raise QueueUnavailable("down")

    rows = SqlRows(BOX, signal=unavailable)
    with Session(site.engine) as session, session.begin():
        rows.insert(session, [{"event_key": "k", "payload": b"{}", "bucket": 1}])
    with site.engine.connect() as connection:
        assert connection.execute(sa.text(f"SELECT count(*) FROM {BOX.table}")).scalar_one() == 1


def test_an_async_session_sends_after_its_commit(postgres_url: str) -> None:
    site = Site(postgres_url)

    async def write(then: Callable[[AsyncSession], Any]) -> None:
        engine = create_async_engine(postgres_url)
        async with AsyncSession(engine) as session:
            await session.run_sync(site.create)
            assert site.signals == []
            await then(session)
        await engine.dispose()

    asyncio.run(write(AsyncSession.rollback))
    assert site.signals == []
    asyncio.run(write(AsyncSession.commit))
    assert site.seen == [1]
    site.engine.dispose()


def test_a_two_phase_transaction_sends_after_its_second_phase(mysql_url: str) -> None:
    site = Site(mysql_url)
    with site.engine.connect() as connection:
        transaction = connection.begin_twophase()
        site.create(connection)
        transaction.prepare()
        assert site.signals == []
        transaction.commit()
        assert site.seen == [1]
    site.engine.dispose()
