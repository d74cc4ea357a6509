"""Statements that travel together, past the driver's cursors: prepared once, and again where they must be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from boxengine.adapters.sql.connecting import round_trip
from boxengine.adapters.sql.connecting.round_trip import Answer, Step

Connection = psycopg.Connection[Any]
LONG = 3_000_000
"""Bytes; more than the sockets' buffers hold."""


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        yield connection


@pytest.fixture
def admin(postgres_url: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


def run(connection: Connection, step: Step, *values: Any) -> list[list[Any]]:
    """What each statement has found; committed."""
    found = [answer.fetchall() for answer in step.run(connection.cursor(), *values)]
    connection.commit()
    return found


def prepared(connection: Connection) -> int:
    row = connection.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'boxengine%'").fetchone()
    connection.commit()
    return int(row[0]) if row else 0


def test_each_statement_answers_for_itself_and_one_transaction_has_them_all(connection: Connection) -> None:
    step = Step(
        "SELECT %s::int + %s::int, 'of 100 %%'", "SELECT pg_current_xact_id()::text", "SELECT generate_series(1, %s)"
    )
    first, second, third = step.run(connection.cursor(), (1, "2"), (), (3,))
    assert first.fetchone() == (3, "of 100 %")
    assert first.fetchone() is None
    assert third.fetchall() == [(1,), (2,), (3,)]
    assert connection.info.transaction_status is TransactionStatus.INTRANS
    assert connection.execute("SELECT pg_current_xact_id()::text").fetchall() == second.fetchall()
    connection.rollback()


def test_a_name_may_look_like_a_place_for_a_value(connection: Connection) -> None:
    """A table may be called anything; its name's percent signs are doubled."""
    step = Step('SELECT %s::int AS "100 %%s, %%%%s, %%", %s::int')
    (found,) = step.run(connection.cursor(), (1, 2))
    assert isinstance(found, Answer)
    assert found.pgresult.fname(0) == b"100 %s, %%s, %"
    assert found.fetchall() == [(1, 2)]
    connection.rollback()


def test_a_step_is_prepared_once(connection: Connection) -> None:
    step = Step("SELECT %s::int", "SELECT 2")
    for number in range(3):
        assert run(connection, step, (number,), ()) == [[(number,)], [(2,)]]
    assert prepared(connection) == 3, "what begins the transaction is one of them"


def test_a_connection_keeps_as_many_steps_as_it_has_room_for(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_trip, "_MOST", 4)
    steps = [Step(f"SELECT {number}") for number in range(10)]
    for _ in range(2):
        for number, step in enumerate(steps):
            assert run(connection, step, ()) == [[(number,)]]
    assert prepared(connection) == 4 * 2


@pytest.mark.parametrize("default", ["repeatable read", "serializable"])
def test_the_transaction_is_read_committed_whatever_the_databases_default_is(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, default: str
) -> None:
    monkeypatch.setattr(round_trip, "_MOST", 2)
    connection.execute(f"SET default_transaction_isolation = '{default}'")
    connection.commit()
    for number in range(5):
        step = Step("SELECT current_setting('transaction_isolation')", f"SELECT {number}")
        assert run(connection, step, (), ()) == [[("read committed",)], [(number,)]]


def test_what_the_driver_forgets_at_a_rollback_is_prepared_again(connection: Connection) -> None:
    step = Step("SELECT %s::int")
    run(connection, step, (1,))
    connection.execute("SELECT 1", prepare=True)
    connection.rollback()
    assert prepared(connection) == 0
    assert run(connection, step, (2,)) == [[(2,)]]
    assert prepared(connection) == 2


def test_a_statement_that_fails_says_why_and_those_behind_it_are_not_run(connection: Connection) -> None:
    connection.execute("CREATE TABLE seen (number int)")
    connection.commit()
    step = Step("SELECT 1 / %s::int", "INSERT INTO seen VALUES (1) RETURNING number")
    for _ in range(3):
        with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero"):
            step.run(connection.cursor(), (0,), ())
        assert connection.info.transaction_status is TransactionStatus.INERROR
        connection.rollback()
    assert run(connection, step, (1,), ()) == [[(1,)], [(1,)]]
    assert connection.execute("SELECT count(*) FROM seen").fetchone() == (1,)
    connection.commit()
    assert prepared(connection) == 3, "what was prepared for the attempts that failed is gone"


def test_a_table_that_has_changed_fails_once_and_is_planned_anew(connection: Connection, admin: Connection) -> None:
    admin.execute("CREATE TABLE changing (a int)")
    step = Step("SELECT * FROM changing")
    assert run(connection, step, ()) == [[]]
    admin.execute("ALTER TABLE changing ADD b int")
    admin.execute("INSERT INTO changing VALUES (1, 2)")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        step.run(connection.cursor(), ())
    connection.rollback()
    assert run(connection, step, ()) == [[(1, 2)]]


def test_a_connection_that_the_server_has_ended_raises_the_drivers_error_and_is_known_to_be_lost(
    connection: Connection, admin: Connection
) -> None:
    step = Step("SELECT %s::int")
    run(connection, step, (1,))
    admin.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        step.run(connection.cursor(), (2,))
    assert connection.closed


def test_a_connection_that_is_ended_while_a_statement_runs_is_no_endless_wait(
    connection: Connection, admin: Connection
) -> None:
    step, pid = Step("SELECT pg_sleep(3600)", "SELECT 1"), connection.info.backend_pid

    def end_it() -> None:
        while not admin.execute(
            "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'", (pid,)
        ).fetchone():
            pass
        admin.execute("SELECT pg_terminate_backend(%s)", (pid,))

    ending = threading.Thread(target=end_it)
    ending.start()
    with pytest.raises(psycopg.OperationalError):
        step.run(connection.cursor(), (), ())
    ending.join()


def test_values_and_answers_larger_than_the_sockets_buffers_pass(connection: Connection) -> None:
    step = Step("SELECT repeat('x', %s)", "SELECT length(%s::text)", "SELECT repeat('y', %s)")
    first, second, third = run(connection, step, (LONG,), ("z" * LONG,), (LONG,))
    assert (len(first[0][0]), second, len(third[0][0])) == (LONG, [(LONG,)], LONG)


def test_other_threads_go_on_while_one_waits(connection: Connection, admin: Connection) -> None:
    """libpq waits inside a call of its own, and the driver does not let go of Python's lock for that."""
    admin.execute("SELECT pg_advisory_lock(7)")
    step, here = Step("SELECT pg_advisory_xact_lock(7)::text"), threading.Event()

    def free_it() -> None:
        here.set()
        # Only a thread that runs meanwhile can end the wait.
        admin.execute("SELECT pg_advisory_unlock(7)")

    with_it = threading.Thread(target=free_it)
    with_it.start()
    here.wait()
    step.run(connection.cursor(), ())
    with_it.join()
    connection.rollback()


def test_where_statements_must_not_be_prepared_the_driver_runs_them(connection: Connection) -> None:
    connection.prepare_threshold = None
    step = Step("SELECT %s::int, 'of 100 %%'", "SELECT 2")
    assert run(connection, step, (1,), ()) == [[(1, "of 100 %")], [(2,)]]
    assert prepared(connection) == 0
