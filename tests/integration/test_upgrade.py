"""``db upgrade`` on servers in use: what its steps wait for, what they leave behind, and whose indexes they touch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import checks, schema, upgrade
from boxengine.adapters.sql.making.planning import Step
from boxengine.adapters.sql.receiving.inbox import SqlInbox
from boxengine.domain.box import Box, BoxType, Storage, StrictOrder
from boxengine.errors import BoxError, SchemaMismatch, StoreUnavailable
from tests.eventually import eventually
from tests.servers.pgbouncer import PgBouncer

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=4)
THEIRS = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="tenant_a.order_outbox_items", bucket_size=4)
INBOX = Box(name="order_inbox_item", type=BoxType.INBOX, table="order_inbox_items", bucket_size=4)
INDEX = "ix_order_outbox_items_failed"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'virtualxid'"
LIMITED = "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET lock_timeout = 1'; END $$"


@pytest.fixture
def engine(postgres_url: str) -> Iterator[sa.Engine]:
    engine = connect(postgres_url, connections=1)
    yield engine
    engine.dispose()


def run(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def asked(engine: sa.Engine, query: str) -> object:
    with engine.begin() as connection:
        return connection.exec_driver_sql(query).scalar()


def plan(engine: sa.Engine, box: Box = BOX) -> list[Step]:
    with engine.connect() as connection:
        return upgrade.plan(connection, [box])


@contextmanager
def older_transaction(url: str) -> Iterator[None]:
    """One with a snapshot, as a report or ``pg_dump`` has."""
    engine = sa.create_engine(url, isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM order_outbox_items")
        yield
    engine.dispose()


def test_an_index_waits_for_older_transactions_without_a_limit(
    engine: sa.Engine, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "LOCK_PATIENCE", timedelta(milliseconds=1))
    schema.create(engine, [BOX])
    run(engine, f"DROP INDEX {INDEX}", LIMITED)
    engine.dispose()
    told: list[str] = []
    watcher = sa.create_engine(postgres_url)
    with ThreadPoolExecutor(1) as threads:
        with older_transaction(postgres_url):
            done = threads.submit(lambda: list(upgrade.apply(engine, plan(engine), tell=told.append)))
            eventually(lambda: done.done() or asked(watcher, WAITING))
            assert told == [f"order_outbox_items: make the index {INDEX}: waits until older transactions have ended"]
        assert len(done.result()) == 1
    assert plan(engine) == []
    watcher.dispose()


def test_an_index_is_finished_though_the_database_limits_statements(engine: sa.Engine, postgres_url: str) -> None:
    """The limit is longer than a statement of this test takes, and shorter than the older transaction."""
    schema.create(engine, [BOX])
    run(engine, f"DROP INDEX {INDEX}", LIMITED.replace("lock_timeout = 1", "statement_timeout = 2000"))
    engine.dispose()
    watcher = sa.create_engine(postgres_url)
    overdue = f"{WAITING} AND now() - query_start > interval '3 seconds'"
    with ThreadPoolExecutor(1) as threads:
        with older_transaction(postgres_url):
            done = threads.submit(lambda: list(upgrade.apply(engine, plan(engine))))
            eventually(lambda: done.done() or asked(watcher, overdue))
        assert len(done.result()) == 1
    assert plan(engine) == []
    watcher.dispose()


@pytest.mark.parametrize("step", ["the index", "the column"])
@pytest.mark.parametrize("pooled", [False, True])
def test_no_setting_of_an_upgrade_stays_on_a_connection(
    engine: sa.Engine, postgres_url: str, pgbouncer: Callable[..., PgBouncer], *, pooled: bool, step: str
) -> None:
    schema.create(engine, [BOX])
    run(engine, f"DROP INDEX {INDEX}", "ALTER TABLE order_outbox_items DROP COLUMN error_log", LIMITED)
    engine.dispose()
    through = connect(pgbouncer(pool_size=1).url(postgres_url) if pooled else postgres_url, connections=1)
    list(upgrade.apply(through, [each for each in plan(through) if step in each.purpose]))
    assert asked(through, "SHOW lock_timeout") == "1ms"
    through.dispose()


@pytest.mark.parametrize("database", ["postgres_url", "mysql_url"])
def test_a_step_that_writers_would_queue_behind_gives_up(
    request: pytest.FixtureRequest, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade, "LOCK_PATIENCE", timedelta(seconds=1))
    url = request.getfixturevalue(database)
    engine = connect(url, connections=1)
    schema.create(engine, [BOX])
    run(engine, "ALTER TABLE order_outbox_items DROP COLUMN error_log")
    with older_transaction(url), pytest.raises(StoreUnavailable, match=r"(?i)lock.* timeout"):
        list(upgrade.apply(engine, plan(engine)))
    engine.dispose()


def test_what_an_attempt_left_of_the_index_by_key_is_made_anew(engine: sa.Engine) -> None:
    box = replace(BOX, strict_order=StrictOrder.KEY, key_index=True)
    schema.create(engine, [box])
    left = f"ARRAY['ix_{BOX.table}_key', 'ix_{BOX.table}_troubled']::regclass[]"
    run(engine, f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = ANY({left})")
    assert len(list(upgrade.apply(engine, plan(engine, box)))) == 4
    assert plan(engine, box) == []


def test_what_an_attempt_left_of_a_logs_index_is_made_anew(engine: sa.Engine) -> None:
    box = replace(BOX, storage=Storage.LOG)
    schema.create(engine, [box])
    run(engine, f"UPDATE pg_index SET indisvalid = false WHERE indrelid = '{BOX.table}_log'::regclass")
    steps = list(upgrade.apply(engine, plan(engine, box)))
    assert [step.purpose.split()[0] for step in steps] == ["drop", "make"] * (len(steps) // 2) != []
    assert plan(engine, box) == []


def test_what_an_attempt_left_is_dropped_in_its_own_schema(engine: sa.Engine) -> None:
    run(engine, "CREATE SCHEMA tenant_a")
    schema.create(engine, [BOX])
    schema.create(engine, [THEIRS])
    run(engine, f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'tenant_a.{INDEX}'::regclass")
    ours = asked(engine, f"SELECT '{INDEX}'::regclass::oid")
    list(upgrade.apply(engine, plan(engine, THEIRS)))
    assert plan(engine, THEIRS) == []
    assert asked(engine, f"SELECT '{INDEX}'::regclass::oid") == ours


def test_an_index_that_another_session_is_making_is_not_dropped(engine: sa.Engine, postgres_url: str) -> None:
    schema.create(engine, [BOX])
    run(engine, f"DROP INDEX {INDEX}")
    other = connect(postgres_url, connections=1)
    with ThreadPoolExecutor(1) as threads:
        with older_transaction(postgres_url):
            done = threads.submit(lambda: list(upgrade.apply(other, plan(other))))
            eventually(lambda: done.done() or asked(engine, WAITING))
            with pytest.raises(
                BoxError, match=rf"session \d+ is making the index {INDEX}; run this command again once it"
            ):
                plan(engine)
        assert len(done.result()) == 1
    assert plan(engine) == []
    other.dispose()


def unfinished(engine: sa.Engine, index: str, *, valid: bool = False) -> None:
    run(engine, f"UPDATE pg_index SET indisvalid = {valid} WHERE indexrelid = '{index}'::regclass")


@pytest.mark.parametrize("name", ["pending", "failed", "troubled"])
def test_an_index_that_is_not_finished_is_told(engine: sa.Engine, name: str) -> None:
    box = replace(BOX, strict_order=StrictOrder.KEY)
    schema.create(engine, [box])
    unfinished(engine, f"ix_{BOX.table}_{name}")
    told = {finding.message: finding for finding in checks.check(engine, [box])}
    (message,) = (each for each in told if each.startswith(f"index ix_{BOX.table}_{name} is not finished"))
    assert (told[message].severity, told[message].remedy) == ("warning", "boxengine db upgrade makes it anew.")
    list(upgrade.apply(engine, plan(engine, box)))
    assert checks.check(engine, [box]) == []


def test_an_index_of_a_log_that_is_not_finished_is_told(engine: sa.Engine) -> None:
    box = replace(BOX, storage=Storage.LOG)
    schema.create(engine, [box])
    unfinished(engine, f"ix_{BOX.table}_log_xact")
    (finding,) = checks.check(engine, [box])
    assert finding.message.startswith(f"index ix_{BOX.table}_log_xact is not finished")


def test_what_could_not_be_made_unique_counts_as_absent(engine: sa.Engine) -> None:
    """``db create`` over an inbox that has a message twice leaves an index that keeps nothing out."""
    schema.create(engine, [INBOX])
    columns = "order_inbox_items (uuid, event_key, bucket, payload)"
    run(
        engine,
        "DROP INDEX ux_order_inbox_items_uuid",
        "ALTER TABLE order_inbox_items DROP COLUMN dedup_key",
        f"INSERT INTO {columns} VALUES (gen_random_uuid(), 'a', 0, 'x')",
        f"INSERT INTO {columns} SELECT uuid, 'b', 0, 'x' FROM order_inbox_items",
    )
    with engine.connect() as connection:
        steps = upgrade.plan_indexes(connection, [INBOX])
    with pytest.raises(StoreUnavailable, match="could not create unique index"):
        list(upgrade.apply(engine, steps))
    told = [finding.message for finding in checks.check(engine, [INBOX])]
    assert any("no unique index over uuid: a message that comes twice is stored twice" in each for each in told)
    with pytest.raises(SchemaMismatch, match="could store a message twice"):
        SqlInbox(SqlStore(engine)).columns(INBOX)


def test_a_worker_uses_an_index_once_it_is_finished(engine: sa.Engine) -> None:
    schema.create(engine, [BOX])
    index = f"ix_{BOX.table}_delayed"
    unfinished(engine, index)
    store = SqlStore(engine)
    assert store.table(BOX).delayed_index is None
    assert store.look_again() == []
    unfinished(engine, index, valid=True)
    assert store.look_again() == [BOX.name]
    assert store.table(BOX).delayed_index == index
