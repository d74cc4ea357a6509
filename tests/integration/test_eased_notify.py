"""Who notifies: the transaction itself while commits are far apart, one thread for all of them while they are not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.sql import schema
from boxengine.adapters.sql.eased_notify import BROKEN_FOR, FAR_APART, EasedNotify
from boxengine.adapters.sql.engine import connect
from boxengine.adapters.sql.insert import SqlRows
from boxengine.adapters.sql.listen import PostgresWakeups
from boxengine.domain.box import Box, BoxType
from boxengine.ports import Signal

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=4)
LONG = timedelta(seconds=30)
A_MOMENT = timedelta(seconds=0.2)


class Site:
    """A table, its writer, and a listener."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.engine = connect(url, connections=2)
        schema.create(self.engine, [BOX])
        self.listener = PostgresWakeups(self.engine)
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
    site.clock.advance(timedelta(seconds=2 * FAR_APART))
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
    assert site.listener.wait(LONG) == [Signal(BOX.name, 2 if count == 1 else None)]


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
        assert eased.sender(connection) is None
        tell = eased.sender(connection)
        assert tell is not None
    sa.event.listen(engine, "checkin", lambda *_: engine.dispose(), once=True)
    tell([Signal(BOX.name, 1)])
    for thread in announcing():
        thread.join()
    assert left == set()


def test_where_connections_cannot_be_spared_transactions_notify_by_themselves(postgres_url: str) -> None:
    engine = sa.create_engine(postgres_url, poolclass=sa.StaticPool)
    eased = EasedNotify(clock=ManualClock())
    with engine.connect() as connection:
        assert [eased.sender(connection) for _ in range(3)] == [None] * 3
    engine.dispose()
