"""Servers with ``idle_session_timeout`` and ``transaction_timeout``: they end sessions that are idle, or have a transaction open
for long, but not those of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.waking.listen import PostgresWakeups
from boxengine.domain.item import Item
from tests.integration.engine.rig import Rig
from tests.servers.databases import with_setting

NOW = timedelta(0)
TRANSACTION_TIMEOUT = 170_000
"""The first version of PostgreSQL that has it."""


@pytest.fixture
def impatient(postgres_url: str) -> str:
    """The URL of a database whose sessions may be idle for half a second.

    A busy machine may take as long as a tenth of that to send a new session's first statement, which turns the limit off.
    """
    return with_setting(postgres_url, "idle_session_timeout=500")


@pytest.fixture
def engine(impatient: str) -> Iterator[Engine]:
    engine = connect(impatient, connections=1)
    yield engine
    engine.dispose()


def wait_until_idle_sessions_end(url: str) -> None:
    """Returns when the server has ended a session that began to be idle now."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as idle, pytest.raises(psycopg.OperationalError):
        next(idle.notifies(timeout=60))


def server_process(engine: Engine) -> object:
    with engine.connect() as connection:
        return connection.execute(text("SELECT pg_backend_pid()")).scalar()


def test_a_connection_rests_in_the_pool_and_stays(engine: Engine, impatient: str) -> None:
    before = server_process(engine)
    wait_until_idle_sessions_end(impatient)
    assert server_process(engine) == before


def test_the_listener_rests_and_stays(engine: Engine, impatient: str) -> None:
    wakeups = PostgresWakeups(engine)
    wakeups.wait(NOW)
    wait_until_idle_sessions_end(impatient)
    with engine.begin() as connection:
        connection.execute(text("NOTIFY boxengine, 'order_outbox_item'"))
    assert [signal.box_name for signal in wakeups.wait(timedelta(seconds=60))] == ["order_outbox_item"]
    wakeups.close()


def test_a_batch_may_last_longer_than_transactions_of_applications(postgres_url: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        if connection.info.server_version < TRANSACTION_TIMEOUT:
            pytest.skip("the server has no transaction_timeout")
    impatient = with_setting(postgres_url, "transaction_timeout=500")
    engine = connect(impatient, connections=1)
    with engine.connect() as batch:
        batch.execute(text("SELECT 1"))
        with psycopg.connect(impatient.replace("+psycopg", "")) as other, pytest.raises(psycopg.Error, match="timeout"):
            other.execute("SELECT pg_sleep(60)")
        assert batch.execute(text("SELECT 2")).scalar() == 2
    engine.dispose()


def test_the_server_looks_every_few_seconds_whether_a_workers_machine_is_still_there(postgres_url: str) -> None:
    engine = connect(postgres_url, connections=1)
    with engine.connect() as connection:
        found = [
            connection.execute(text(f"SHOW tcp_keepalives_{name}")).scalar() for name in ("idle", "interval", "count")
        ]
    engine.dispose()
    assert found == ["15", "5", "3"]


def test_a_connection_that_handlers_have_used_stays(tmp_path: Path, impatient: str, redis_url: str) -> None:
    processes: list[object] = []

    def handle(item: Item, _payload: bytes, *, session: Session) -> None:
        processes.append(session.execute(text("SELECT pg_backend_pid()")).scalar())

    with Rig(tmp_path, database=impatient, redis=redis_url, processor={"threads_count": 1, "brpop_delay": 0.2}) as rig:
        rig.create_tables()
        rig.carry(handle)
        with rig.worker() as watcher:
            for number in (1, 2, 3):
                rig.create("k")
                watcher.wait_for_settled(number)
                wait_until_idle_sessions_end(impatient)
            with psycopg.connect(impatient.replace("+psycopg", "")) as connection:
                still = connection.execute(
                    "SELECT pid FROM pg_stat_activity WHERE pid = ANY(%s)", [processes]
                ).fetchall()
        assert watcher.outages == []
    assert {pid for (pid,) in still} == set(processes)
