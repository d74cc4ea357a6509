"""Who notifies: the transaction itself while commits are far apart, one thread or task for all while they are not."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from contextvars import ContextVar
from datetime import timedelta
from typing import Any
from weakref import ref

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy import QueuePool
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from boxengine.adapters.announcer import LONGEST
from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.creating.insert import SqlRows
from boxengine.adapters.sql.jobs.wakeup import JobWakeup
from boxengine.adapters.sql.making import schema
from boxengine.adapters.sql.waking.eased_notify import BROKEN_FOR, EasedNotify
from boxengine.adapters.sql.waking.line import Line
from boxengine.adapters.sql.waking.listen import CHANNEL, PostgresWakeups
from boxengine.adapters.sql.waking.notifying import IN_TRANSACTION
from boxengine.domain.box import Box, BoxType
from boxengine.embedded import EmbeddedPostgres
from boxengine.ports import Signal
from tests.servers.postgres import PostgresFromWheel
from tests.servers.promised import promised_servers, require

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=4)
LONG = timedelta(seconds=30)
A_MOMENT = timedelta(seconds=0.2)
A_WHILE = timedelta(seconds=LONGEST)
"""After which a transaction notifies by itself again, whatever the pace of the thread is."""


class Site:
    """A table, its writer, and a listener."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.engine = connect(url, connections=2)
        schema.create(self.engine, [BOX])
        # Of another process: it connects anew when its own engine is disposed of.
        self.listener = PostgresWakeups(sa.create_engine(url))
        self.listener.wait(timedelta(0))
        self.rows = SqlRows(BOX, notify=True, eased=EasedNotify(clock=self.clock))
        self.statements: list[str] = []
        sa.event.listen(self.engine, "before_cursor_execute", self._note)

    def _note(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        self.statements.append(statement)

    def create(self, bucket: int, *, commit: bool = True, count: int = 1) -> bool:
        """Creates an item; whether its transaction notifies by itself."""
        before = len(self.statements)
        with self.engine.connect() as connection:
            self.rows.insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": bucket}] * count)
            notifies = any("pg_notify" in statement for statement in self.statements[before:])
            if commit:
                connection.commit()
        return notifies


def announcing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "boxengine-announcer"]


@pytest.fixture
def site(postgres_url: str) -> Iterator[Site]:
    site = Site(postgres_url)
    site.create(0)  # it learns about the table
    site.listener.wait(LONG)
    site.clock.advance(A_WHILE)
    yield site
    site.listener.close()
    site.engine.dispose()


def test_a_lone_item_notifies_in_its_own_transaction(site: Site) -> None:
    assert site.create(1)
    assert site.listener.wait(LONG) == [Signal(BOX.name, 1)]


@pytest.mark.parametrize("count", [1, 3])
def test_items_close_together_leave_their_transactions_alone_and_are_told_of_after_the_commit(
    site: Site, count: int
) -> None:
    site.create(1)
    site.listener.wait(LONG)
    assert not site.create(2, count=count)
    assert site.listener.wait(LONG) == [Signal(BOX.name, 2)]


def test_nothing_is_told_of_a_transaction_that_was_rolled_back(site: Site) -> None:
    site.create(1)
    site.listener.wait(LONG)
    site.create(2, commit=False)
    site.create(3)
    assert site.listener.wait(LONG) == [Signal(BOX.name, 3)]
    assert site.listener.wait(A_MOMENT) == []


def test_after_the_thread_could_not_notify_transactions_do_it_themselves_for_a_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(1)
    site.listener.wait(LONG)
    with monkeypatch.context() as broken:
        broken.setattr(
            sa.func, "unnest", lambda *_: (_ for _ in ()).throw(sa.exc.OperationalError("", {}, Exception()))
        )
        site.create(2)
        assert site.listener.wait(A_MOMENT) == []
    assert site.create(3)
    assert site.listener.wait(LONG) == [Signal(BOX.name, 3)]
    site.clock.advance(timedelta(seconds=BROKEN_FOR))
    site.create(1)
    assert not site.create(2)


def test_while_the_thread_waits_for_an_answer_transactions_notify_by_themselves(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(1)
    site.listener.wait(LONG)
    asked, answer = threading.Event(), threading.Event()

    def ask(*_of_checkout: Any) -> None:
        if threading.current_thread() in announcing():
            asked.set()
            assert answer.wait(60)

    sa.event.listen(site.engine, "checkout", ask)
    site.create(2)
    assert asked.wait(60)
    monkeypatch.setattr("boxengine.adapters.announcer.HANGING", 3600)
    assert not site.create(3), "it may answer yet"
    monkeypatch.setattr("boxengine.adapters.announcer.HANGING", 0)
    assert site.create(1)
    assert site.listener.wait(LONG) == [Signal(BOX.name, 1)]
    answer.set()
    left = {Signal(BOX.name, 2), Signal(BOX.name, 3)}
    while left:
        left -= set(site.listener.wait(LONG))


@pytest.mark.parametrize("event", ["checkout", "checkin"])
def test_a_listener_that_a_new_thread_lacks_something_for_does_not_end_the_thread(
    postgres_url: str, event: str
) -> None:
    engine, failures = sa.create_engine(postgres_url), list[str]()
    tenant: ContextVar[str] = ContextVar("tenant")
    sa.event.listen(engine, event, lambda *_: tenant.get(), once=True)
    with closing(Senders(postgres_url)) as senders:
        for bucket in (1, 2):
            with Line(engine, ref(engine.pool), failed=lambda: failures.append("")) as send:
                send([Signal(BOX.name, bucket)])
            if bucket == 2 or event == "checkin":
                assert senders.next()[1] == f"{BOX.name}:{bucket}"
    assert failures == [""]
    engine.dispose()


def set_tenant(driver: Any, *_: Any) -> None:
    """A listener of an application, whose statement begins a transaction."""
    with closing(driver.cursor()) as cursor:
        cursor.execute("SELECT set_config('app.tenant', 'acme', false)")


@pytest.mark.parametrize("event", ["connect", "checkout"])
def test_a_transaction_that_a_listener_has_begun_does_not_keep_the_thread_from_notifying(
    postgres_url: str, event: str
) -> None:
    engine, failures = sa.create_engine(postgres_url), list[str]()
    sa.event.listen(engine, event, set_tenant)
    told = Line(engine, ref(engine.pool), failed=lambda: failures.append(""))
    with closing(Senders(postgres_url)) as senders, told as send:
        send([Signal(BOX.name, 1)])
        assert senders.next()[1] == f"{BOX.name}:1"
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT current_setting('app.tenant')")) == "acme"
    assert failures == []
    engine.dispose()


def test_after_a_listener_refused_the_thread_transactions_notify_by_themselves(site: Site) -> None:
    site.create(1)
    site.listener.wait(LONG)
    tenant: ContextVar[str] = ContextVar("tenant")
    tenant.set("acme")  # which the thread does not know
    sa.event.listen(site.engine, "checkout", lambda *_: tenant.get())
    site.create(2)
    for thread in announcing():
        thread.join()
    assert site.create(3)
    assert site.listener.wait(LONG) == [Signal(BOX.name, 3)]


def test_a_hint_that_is_sent_after_the_engine_was_disposed_of_leaves_no_connection_behind(site: Site) -> None:
    site.create(1)
    site.listener.wait(LONG)
    left: set[int] = set()
    sa.event.listen(site.engine, "connect", lambda driver, _record: left.add(id(driver)))
    sa.event.listen(site.engine, "close", lambda driver, _record: left.discard(id(driver)))
    opened = site.engine.connect()
    site.rows.insert(opened, [{"event_key": "k", "payload": b"{}", "bucket": 3}])
    site.engine.dispose()
    opened.commit()
    opened.invalidate()
    opened.close()
    assert site.listener.wait(LONG) == [Signal(BOX.name, 3)]
    for thread in announcing():
        thread.join()
    assert left == set()


def test_a_connection_on_its_way_back_while_the_application_disposes_of_its_engine_is_closed(
    postgres_url: str,
) -> None:
    engine, left = sa.create_engine(postgres_url), set[int]()
    sa.event.listen(engine, "connect", lambda driver, _record: left.add(id(driver)))
    sa.event.listen(engine, "close", lambda driver, _record: left.discard(id(driver)))
    eased = EasedNotify(clock=ManualClock())
    with engine.connect() as connection:
        tell = eased.way(connection).tell
        assert tell is not None
    sa.event.listen(engine, "checkin", lambda *_: engine.dispose(), once=True)
    tell([Signal(BOX.name, 1)])
    for thread in announcing():
        thread.join()
    assert left == set()


class Senders:
    """Tells which session of the server has sent a notification."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
        self._connection.execute(f"LISTEN {CHANNEL}")

    def next(self) -> tuple[int, str]:
        """The session's number and the text of the next one."""
        (notice,) = self._connection.notifies(timeout=30, stop_after=1)
        return notice.pid, notice.payload

    def end(self, session: int) -> None:
        """Ends that session, and waits until it has ended."""
        self._connection.execute("SELECT pg_terminate_backend(%s, 60000)", [session])

    def close(self) -> None:
        self._connection.close()


def session_of(connection: sa.Connection) -> int:
    return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


@pytest.mark.parametrize("count", [1, 3])
def test_a_transaction_does_not_wait_until_another_has_notified(site: Site, postgres_url: str, count: int) -> None:
    """PostgreSQL would let only one of the two commit at a time."""
    row = {"event_key": "k", "payload": b"{}", "bucket": 1}
    with closing(Senders(postgres_url)) as senders, site.engine.connect() as first, site.engine.connect() as second:
        own = {session_of(first), session_of(second)}
        site.rows.insert(first, [row])
        site.clock.advance(A_WHILE)
        site.rows.insert(second, [{**row, "bucket": 2}] * count)
        second.commit()
        sender, text = senders.next()
        assert text == f"{BOX.name}:2"
        assert sender not in own
        first.commit()
        assert senders.next() == (session_of(first), f"{BOX.name}:1")


def test_where_nobody_can_notify_for_it_a_transaction_notifies_though_it_must_wait(
    site: Site, postgres_url: str
) -> None:
    engine = sa.create_engine(postgres_url, poolclass=sa.StaticPool)
    row = {"event_key": "k", "payload": b"{}", "bucket": 1}
    with closing(Senders(postgres_url)) as senders, site.engine.connect() as first, engine.connect() as second:
        site.rows.insert(first, [row])
        site.rows.insert(second, [{**row, "bucket": 2}])
        own = session_of(second)
        second.commit()
        assert senders.next() == (own, f"{BOX.name}:2")
    engine.dispose()


def test_without_a_pool_the_thread_opens_a_connection_of_its_own_and_closes_it(site: Site, postgres_url: str) -> None:
    engine, left = sa.create_engine(postgres_url, poolclass=sa.NullPool), set[int]()
    row = {"event_key": "k", "payload": b"{}", "bucket": 1}
    with closing(Senders(postgres_url)) as senders, engine.connect() as first, engine.connect() as second:
        site.rows.insert(first, [row])
        site.clock.advance(A_WHILE)
        sa.event.listen(engine, "connect", lambda driver, _record: left.add(id(driver)))
        sa.event.listen(engine, "close", lambda driver, _record: left.discard(id(driver)))
        site.rows.insert(second, [{**row, "bucket": 2}])
        own = {session_of(first), session_of(second)}
        second.commit()
        sender, text = senders.next()
        assert text == f"{BOX.name}:2"
        assert sender not in own
        for thread in announcing():
            thread.join()
        assert left == set()
        first.commit()
        assert senders.next()[1] == f"{BOX.name}:1"


def test_a_rolled_back_transaction_gives_its_turn_to_the_next(site: Site, postgres_url: str) -> None:
    site.create(1, commit=False)
    site.clock.advance(A_WHILE)
    with closing(Senders(postgres_url)) as senders, site.engine.connect() as connection:
        own = session_of(connection)
        site.rows.insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": 2}])
        connection.commit()
        assert senders.next() == (own, f"{BOX.name}:2")


@pytest.mark.parametrize(
    ("pool_size", "max_overflow", "out"), [(2, 1, 2), (1, 1, 1), (2, 0, 1), (3, 0, 2), (2, -1, 2), (1, -1, 1)]
)
def test_the_thread_keeps_its_connection_until_the_pool_is_empty(
    postgres_url: str, pool_size: int, max_overflow: int, out: int
) -> None:
    """One other connection is out."""
    engine = sa.create_engine(postgres_url, pool_size=pool_size, max_overflow=max_overflow)
    failures: list[str] = []
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    with (
        closing(Senders(postgres_url)) as senders,
        engine.connect(),
        Line(engine, ref(pool), failed=lambda: failures.append("")) as send,
    ):
        for bucket in (1, 2):
            send([Signal(BOX.name, bucket)])
            assert senders.next()[1] == f"{BOX.name}:{bucket}"
            assert pool.checkedout() == out
    assert pool.checkedout() == 0
    assert failures == []
    engine.dispose()


def test_without_a_pool_the_thread_keeps_its_connection_while_there_is_something_to_send(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool)
    with closing(Senders(postgres_url)) as senders, Line(engine, ref(engine.pool), failed=lambda: None) as send:
        send([Signal(BOX.name, 1)])
        sender, _ = senders.next()
        send([Signal(BOX.name, 2)])
        assert senders.next() == (sender, f"{BOX.name}:2")


def test_a_connection_that_broke_is_replaced(postgres_url: str) -> None:
    engine, failures = sa.create_engine(postgres_url), list[str]()
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    with (
        closing(Senders(postgres_url)) as senders,
        Line(engine, ref(pool), failed=lambda: failures.append("")) as send,
    ):
        send([Signal(BOX.name, 1)])
        senders.end(senders.next()[0])
        send([Signal(BOX.name, 2)])
        assert failures == [""]
        send([Signal(BOX.name, 3)])
        assert senders.next()[1] == f"{BOX.name}:3"
    assert pool.checkedout() == 0
    engine.dispose()


def test_a_connection_lost_between_two_sendings_goes_back_to_the_pool_as_one_to_replace(postgres_url: str) -> None:
    engine, lent = sa.create_engine(postgres_url), list[Any]()
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    sa.event.listen(pool, "checkout", lambda driver, *_: lent.append(driver))
    with Line(engine, ref(pool), failed=lambda: None) as send:
        send([Signal(BOX.name, 1)])
        lent[0].close()
    assert pool.checkedout() == 0
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    engine.dispose()


@pytest.mark.parametrize("isolation_level", ["READ COMMITTED", "AUTOCOMMIT"])
def test_a_connection_that_notified_goes_back_in_the_mode_in_which_it_came(
    postgres_url: str, isolation_level: Any
) -> None:
    engine, given = sa.create_engine(postgres_url, isolation_level=isolation_level), list[bool]()
    eased = EasedNotify(clock=ManualClock())
    with engine.connect() as connection:
        tell = eased.way(connection).tell
        assert tell is not None
    sa.event.listen(engine, "reset", lambda driver, *_: given.append(driver.autocommit))
    tell([Signal(BOX.name, 1)])
    for thread in announcing():
        thread.join()
    engine.dispose()
    assert given == [isolation_level == "AUTOCOMMIT"]


@pytest.mark.parametrize("pool", [{"poolclass": sa.StaticPool}, {"pool_size": 1, "max_overflow": 0}])
def test_where_connections_cannot_be_spared_transactions_notify_by_themselves(
    postgres_url: str, pool: dict[str, Any]
) -> None:
    engine = sa.create_engine(postgres_url, **pool)
    eased = EasedNotify(clock=ManualClock())
    with engine.connect() as connection:
        assert [eased.way(connection) for _ in range(3)] == [IN_TRANSACTION] * 3
    engine.dispose()


@pytest.mark.parametrize("pool", [{}, {"poolclass": sa.NullPool}, {"poolclass": sa.StaticPool}])
def test_engines_that_nobody_disposes_of_are_freed(site: Site, postgres_url: str, pool: dict[str, Any]) -> None:
    def use() -> ref[Any]:
        engine = sa.create_engine(postgres_url, **pool)
        for bucket in (1, 2):
            with engine.connect() as connection:
                site.rows.insert(connection, [{"event_key": "k", "payload": b"{}", "bucket": bucket}])
                connection.commit()
        for thread in announcing():
            thread.join()
        # The pool's connections would warn that nobody closed them.
        engine.pool.dispose()
        return ref(engine)

    left = [use(), use()]
    gc.collect()
    assert [each() for each in left] == [None, None]


def test_an_engine_with_other_options_that_is_gone_leaves_the_pools_others_their_thread(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url)
    eased = EasedNotify(clock=ManualClock())
    with engine.execution_options(schema_translate_map={}).connect() as connection:
        eased.way(connection)
    gc.collect()
    with closing(Senders(postgres_url)) as senders, engine.connect() as connection:
        tell = eased.way(connection).tell
        assert tell is not None
        tell([Signal(BOX.name, 1)])
        assert senders.next()[1] == f"{BOX.name}:1"
    for thread in announcing():
        thread.join()
    engine.dispose()


# ── in two phases ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def two_phase_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that lets transactions be prepared, as few do."""
    require(PostgresFromWheel().offer(), promised_servers(os.environ))
    folder = tmp_path_factory.mktemp("two_phase") / "own"
    with EmbeddedPostgres(folder, durable=False, settings={"max_prepared_transactions": "4"}) as server:
        yield server.url()


@pytest.fixture
def two_phases(two_phase_url: str) -> Iterator[Site]:
    site = Site(two_phase_url)
    yield site
    with site.engine.begin() as connection:
        connection.exec_driver_sql(f"DROP TABLE {BOX.table}")
    site.listener.close()
    site.engine.dispose()


def insert_item(site: Site, session: Session) -> None:
    site.rows.insert(session, [{"event_key": "k", "payload": b"{}", "bucket": 1}])


def insert_items(site: Site, session: Session) -> None:
    site.rows.insert(session, [{"event_key": "k", "payload": b"{}", "bucket": 1}] * 2)


def tell_of_job(site: Site, session: Session) -> None:
    JobWakeup(BOX.name, notify=True, eased=EasedNotify(clock=site.clock)).tell(session.connection())


@pytest.mark.parametrize("act", [insert_item, insert_items, tell_of_job])
@pytest.mark.parametrize("broken", [False, True])
def test_a_transaction_in_two_phases_commits_and_is_told_of_afterwards(
    two_phases: Site, act: Callable[[Site, Session], None], *, broken: bool
) -> None:
    if broken:
        two_phases.rows._eased._failed()  # type: ignore[union-attr]
    with Session(two_phases.engine, twophase=True) as session:
        act(two_phases, session)
        session.prepare()
        assert two_phases.listener.wait(A_MOMENT) == []
        session.commit()
    (signal,) = two_phases.listener.wait(LONG)
    assert signal.box_name == BOX.name


def test_a_transaction_in_two_phases_commits_though_nobody_can_notify_for_it(two_phases: Site) -> None:
    engine = sa.create_engine(two_phases.engine.url, poolclass=sa.StaticPool)
    with Session(engine, twophase=True) as session:
        insert_item(two_phases, session)
        session.commit()
    with engine.begin() as connection:
        assert connection.exec_driver_sql(f"SELECT count(*) FROM {BOX.table}").scalar_one() == 1
    engine.dispose()


def test_on_a_loop_a_transaction_in_two_phases_commits_and_is_told_of_afterwards(two_phases: Site) -> None:
    async def run() -> None:
        async with on_loop(two_phases, two_phases.engine.url.render_as_string(hide_password=False)) as loop:
            async with AsyncSession(loop.engine, twophase=True) as session:
                await session.run_sync(lambda sync: insert_item(two_phases, sync))
                await session.commit()
            assert await loop.heard() == [Signal(BOX.name, 1)]

    asyncio.run(run())


# ── on an event loop ─────────────────────────────────────────────────────────────────────────────────


class LoopSite:
    """The same for an application on an event loop, which has another connection out; the listener waits in a thread."""

    def __init__(self, site: Site, engine: AsyncEngine) -> None:
        self._site = site
        self.clock = site.clock
        self.engine = engine
        self.open: set[int] = set()
        sa.event.listen(engine.sync_engine, "before_cursor_execute", site._note)
        sa.event.listen(engine.sync_engine, "connect", lambda driver, _record: self.open.add(id(driver)))
        sa.event.listen(engine.sync_engine, "close", lambda driver, _record: self.open.discard(id(driver)))

    async def create(self, bucket: int, *, commit: bool = True) -> bool:
        """Creates an item; whether its transaction notifies by itself."""
        row = {"event_key": "k", "payload": b"{}", "bucket": bucket}
        async with self.engine.connect() as connection:
            before = len(self._site.statements)
            await connection.run_sync(lambda sync: self._site.rows.insert(sync, [row]))
            notifies = any("pg_notify" in statement for statement in self._site.statements[before:])
            if commit:
                await connection.commit()
        return notifies

    async def heard(self, wait: timedelta = LONG) -> list[Signal]:
        """What the next signals are."""
        return list(await asyncio.to_thread(self._site.listener.wait, wait))


@pytest.fixture(params=["postgresql+asyncpg", "postgresql+psycopg"])
def url(request: pytest.FixtureRequest, postgres_url: str) -> str:
    return postgres_url.replace("postgresql+psycopg", request.param)


@asynccontextmanager
async def on_loop(site: Site, url: str, **options: Any) -> AsyncIterator[LoopSite]:
    engine = create_async_engine(url, **options)
    try:
        async with engine.connect() as beside:
            yield LoopSite(site, engine)
            await beside.invalidate()  # its pool may have been disposed of
    finally:
        await engine.dispose()


def announcing_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "boxengine-announcer"]


def test_on_a_loop_items_close_together_are_told_of_by_a_task_after_their_commits(site: Site, url: str) -> None:
    async def run() -> None:
        async with on_loop(site, url) as loop:
            assert await loop.create(1), "a lone item"
            assert await loop.heard() == [Signal(BOX.name, 1)]
            assert not await loop.create(2)
            assert await loop.heard() == [Signal(BOX.name, 2)]
            loop.clock.advance(A_WHILE)
            assert await loop.create(3), "a lone item again"

    asyncio.run(run())


def test_on_a_loop_one_writer_alone_notifies_in_its_transactions(site: Site, url: str) -> None:
    async def run() -> None:
        engine = create_async_engine(url)
        loop = LoopSite(site, engine)
        assert [await loop.create(bucket) for bucket in (1, 2, 3)] == [True] * 3
        await engine.dispose()

    asyncio.run(run())


def test_on_a_loop_a_transaction_does_not_wait_until_another_has_notified(site: Site, url: str) -> None:
    async def run() -> None:
        async with on_loop(site, url) as loop:
            with site.engine.connect() as first:
                site.rows.insert(first, [{"event_key": "k", "payload": b"{}", "bucket": 1}])
                site.clock.advance(A_WHILE)
                await loop.create(2)
                assert announcing_tasks()
                assert await loop.heard() == [Signal(BOX.name, 2)]
                first.commit()
            assert await loop.heard() == [Signal(BOX.name, 1)]

    asyncio.run(run())


def test_on_a_loop_without_a_pool_the_task_opens_a_connection_of_its_own_and_closes_it(site: Site, url: str) -> None:
    async def run() -> None:
        async with on_loop(site, url, poolclass=sa.NullPool) as loop:
            await loop.create(1)
            await loop.heard()
            connected = len(loop.open)
            assert not await loop.create(2)
            assert await loop.heard() == [Signal(BOX.name, 2)]
            await asyncio.gather(*announcing_tasks())
            assert len(loop.open) == connected

    asyncio.run(run())


def test_on_a_loop_nothing_is_told_of_a_transaction_that_was_rolled_back(site: Site, url: str) -> None:
    async def run() -> None:
        async with on_loop(site, url) as loop:
            await loop.create(1)
            await loop.heard()
            await loop.create(2, commit=False)
            await loop.create(3)
            assert await loop.heard() == [Signal(BOX.name, 3)]
            assert await loop.heard(A_MOMENT) == []

    asyncio.run(run())


def test_on_a_loop_writers_at_once_are_all_told_of_with_few_notifications(site: Site, url: str) -> None:
    async def run() -> None:
        async with on_loop(site, url, pool_size=5, max_overflow=0) as loop:
            await loop.create(0)
            await loop.heard()
            before = len(site.statements)
            await asyncio.gather(*(loop.create(each % 4) for each in range(40)))
            left = {Signal(BOX.name, bucket) for bucket in range(4)}
            while left:
                left -= set(await loop.heard())
            while tasks := announcing_tasks():
                await asyncio.gather(*tasks)
            assert sum("pg_notify" in statement for statement in site.statements[before:]) < 20

    asyncio.run(run())


@pytest.mark.parametrize("error", [OSError("refused"), LookupError("tenant")])
def test_on_a_loop_transactions_notify_by_themselves_for_a_while_after_the_task_could_not(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(_engine: AsyncEngine) -> AsyncConnection:
        raise error

    async def run() -> None:
        async with on_loop(site, url) as loop:
            await loop.create(1)
            await loop.heard()
            row = {"event_key": "k", "payload": b"{}", "bucket": 2}
            async with loop.engine.connect() as connection:
                await connection.run_sync(lambda sync: site.rows.insert(sync, [row]))
                with monkeypatch.context() as broken:
                    broken.setattr(AsyncEngine, "connect", refuse)
                    await connection.commit()
                    await asyncio.gather(*announcing_tasks())
            assert await loop.heard(A_MOMENT) == []
            assert await loop.create(3)
            assert await loop.heard() == [Signal(BOX.name, 3)]
            loop.clock.advance(timedelta(seconds=BROKEN_FOR))
            await loop.create(1)
            assert not await loop.create(2)

    asyncio.run(run())


def test_on_a_loop_transactions_notify_by_themselves_while_the_task_waits_for_an_answer(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def ask(_connection: AsyncConnection, *_: Any) -> None:
            asked.set()
            await answer.wait()

        async with on_loop(site, url) as loop:
            await loop.create(1)
            await loop.heard()
            monkeypatch.setattr(AsyncConnection, "exec_driver_sql", ask)
            assert not await loop.create(2)
            await asked.wait()
            monkeypatch.setattr("boxengine.adapters.announcer.HANGING", 0)
            assert await loop.create(3)
            assert await loop.heard() == [Signal(BOX.name, 3)]
            answer.set()
            await asyncio.gather(*announcing_tasks())

    asyncio.run(run())


def test_on_a_loop_a_transaction_that_a_listener_has_begun_does_not_keep_the_task_from_notifying(
    site: Site, url: str
) -> None:
    async def run() -> None:
        async with on_loop(site, url) as loop:
            sa.event.listen(loop.engine.sync_engine, "checkout", set_tenant)
            await loop.create(1)
            await loop.heard()
            assert not await loop.create(2)
            assert await loop.heard() == [Signal(BOX.name, 2)]
            await asyncio.gather(*announcing_tasks())
            assert not await loop.create(3)
            assert await loop.heard() == [Signal(BOX.name, 3)]

    asyncio.run(run())


def test_on_a_loop_the_task_knows_nothing_of_the_request_that_committed(site: Site, url: str) -> None:
    request: ContextVar[str] = ContextVar("request", default="none")
    seen: list[str] = []

    async def run() -> None:
        async with on_loop(site, url) as loop:
            sa.event.listen(
                loop.engine.sync_engine,
                "before_cursor_execute",
                lambda _c, _cursor, statement, *_: seen.append(request.get()) if "unnest" in statement else None,
            )
            await loop.create(1)
            request.set("POST /orders")
            await loop.create(2)
            await loop.heard()
            await loop.heard()

    asyncio.run(run())
    assert seen == ["none"]


def test_on_a_loop_a_hint_sent_after_the_engine_was_disposed_of_leaves_no_connection_behind(
    site: Site, url: str
) -> None:
    async def run() -> None:
        async with on_loop(site, url) as loop:
            await loop.create(1)
            await loop.heard()
            row = {"event_key": "k", "payload": b"{}", "bucket": 3}
            opened = await loop.engine.connect()
            await opened.run_sync(lambda sync: site.rows.insert(sync, [row]))
            await loop.engine.dispose()
            await opened.commit()
            await opened.invalidate()
            await opened.close()
            assert await loop.heard() == [Signal(BOX.name, 3)]
            await asyncio.gather(*announcing_tasks())
            assert loop.open == set()

    asyncio.run(run())


def test_a_loop_that_ends_while_the_task_is_at_the_database_leaves_no_connection_behind(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def ask(connection: AsyncConnection, *_: Any) -> None:
            asked.set()
            await answer.wait()

        async with on_loop(site, url) as loop:
            monkeypatch.setattr(AsyncConnection, "exec_driver_sql", ask)
            await loop.create(1)
            await loop.create(2)
            await asked.wait()
            (task,) = announcing_tasks()
            await loop.engine.dispose()
            task.cancel()  # as asyncio.run does with whatever is left
            await asyncio.gather(task, return_exceptions=True)
        assert loop.open == set()

    asyncio.run(run())


def test_an_engine_disposed_of_while_the_task_returns_its_connection_leaves_none_behind(site: Site, url: str) -> None:
    async def run() -> LoopSite:
        told_by: list[Any] = []
        disposed = asyncio.Event()

        async with on_loop(site, url) as loop:

            def note(connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
                if "unnest" in statement:
                    told_by.append(connection.connection.dbapi_connection)

            def dispose(driver: Any, *_: Any) -> None:
                if driver in told_by and not disposed.is_set():
                    loop.engine.sync_engine.dispose()
                    disposed.set()

            sa.event.listen(loop.engine.sync_engine, "before_cursor_execute", note)
            sa.event.listen(loop.engine.sync_engine, "reset", dispose)
            await loop.create(1)
            await loop.create(2)
            await disposed.wait()
        return loop

    assert asyncio.run(run()).open == set()


def test_a_loop_that_ends_at_once_is_no_error(site: Site, url: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with on_loop(site, url) as loop:
            await loop.create(1)
            await loop.create(2)

    asyncio.run(run())
    assert caplog.records == []
