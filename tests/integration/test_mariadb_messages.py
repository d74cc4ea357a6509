"""What people read when MariaDB breaks a connection: the cause and the next step, and no traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import pymysql
import pytest
import sqlalchemy as sa

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.sql.connecting.engine import connect
from boxengine.adapters.sql.connecting.errors import sentence, translated
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.making import schema
from boxengine.domain.box import Box, BoxType
from boxengine.engine.running.outages import Outages
from boxengine.errors import StoreConflict, StoreUnavailable
from boxengine.ports.events import Event, OutageBegan, OutageEnded

BOX = Box(name="order_outbox_item", type=BoxType.OUTBOX, table="order_outbox_items", bucket_size=1)


@pytest.fixture
def store(mysql_url: str) -> Iterator[SqlStore]:
    store = SqlStore(connect(mysql_url, connections=1))
    schema.create(store.engine, [BOX])
    with store.engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO order_outbox_items (uuid, event_key, bucket, payload) VALUES (uuid(), 'k', 0, 'x')"
        )
    yield store
    store.close()


def kill(url: str, connection_id: int) -> None:
    admin = sa.create_engine(url)
    with admin.connect() as connection, suppress(sa.exc.DBAPIError):
        connection.exec_driver_sql(f"KILL CONNECTION {connection_id}")
    admin.dispose()


def test_an_oversized_packet_of_a_handler_is_named_with_its_limit(store: SqlStore) -> None:
    def write_too_much() -> None:
        with store.claims(BOX).open({0: None}, 10) as claim:
            claim.session.execute(sa.text("SELECT length(:x)"), {"x": "y" * 20_000_000})

    with pytest.raises(StoreUnavailable) as raised:
        write_too_much()
    assert "max_allowed_packet" in str(raised.value)


def test_a_connection_that_was_lost_before_the_commit_says_so(store: SqlStore, mysql_url: str) -> None:
    def lose_the_connection() -> None:
        with store.claims(BOX).open({0: None}, 10) as claim:
            claim._cursor.execute("SELECT CONNECTION_ID()")
            kill(mysql_url, claim._cursor.fetchone()[0])
            claim.later_delivered(claim.items)

    with pytest.raises(StoreUnavailable) as raised:
        lose_the_connection()
    assert "wait_timeout" in str(raised.value) or "KILL" in str(raised.value)
    store.ping()


def test_a_connection_lost_on_its_way_back_to_the_pool_leaves_no_traceback(
    store: SqlStore, mysql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="boxengine")  # as in a worker
    with suppress(StoreUnavailable), store._cursor(store.engine) as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        (number,) = cursor.fetchone() or (0,)
        kill(mysql_url, number)
    with suppress(StoreUnavailable):
        store.ping()
    store.ping()
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (pymysql.err.InterfaceError(0, ""), "the connection was closed"),
        (pymysql.err.OperationalError(1213, "Deadlock found when trying to get lock"), "waited for each other (1213)"),
        (pymysql.err.OperationalError(4031, "The client was disconnected"), "raise wait_timeout (4031)"),
        (pymysql.err.ProgrammingError(1142, "UPDATE command denied"), "the database: UPDATE command denied (1142)"),
    ],
)
def test_an_error_says_what_to_do(error: Exception, said: str) -> None:
    assert said in sentence(error)


class Told:
    """Keeps what is announced."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def see(self, event: Event) -> None:
        match event:
            case OutageBegan():
                self.lines.append(f"{event.what} does not work: {event.reason}")
            case OutageEnded():
                self.lines.append(f"{event.what} works again")
            case _:
                pass


def test_one_deadlock_is_no_outage_and_a_second_in_a_row_is() -> None:
    told = Told()
    outages = Outages(
        observer=told,
        error_tracker=lambda *_args, **_context: None,
        clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC)),
    )
    outages.failed("box a", StoreConflict("deadlock"))
    outages.worked("box a")
    assert told.lines == []
    for _ in range(3):
        outages.failed("box a", StoreConflict("deadlock"))
    outages.worked("box a")
    assert told.lines == ["box a does not work: deadlock", "box a works again"]


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (
            # As the server does in a deadlock.
            ["ROLLBACK", "BEGIN NOT ATOMIC SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213; END"],
            "two transactions waited for each other",
        ),
        (["COMMIT"], "a handler has ended the transaction"),
    ],
    ids=["deadlock", "handler"],
)
def test_what_has_ended_a_transaction_with_a_savepoint_is_told(
    store: SqlStore, statements: list[str], told: str
) -> None:
    with pytest.raises(StoreUnavailable, match=told), translated(store.engine), store.engine.begin() as connection:
        savepoint(connection, statements)


def savepoint(connection: sa.Connection, statements: list[str]) -> None:
    with connection.begin_nested():
        for statement in statements:
            connection.exec_driver_sql(statement)
