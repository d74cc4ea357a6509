"""Gives a statement a shorter time limit than its connection has, where an answer may be left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from sqlalchemy import Connection

from boxengine.adapters.sql.connecting.cursors import Cursor

SHORT = timedelta(milliseconds=50)
"""For statements that somebody waits for, or that are asked again and again."""
_CANCELED = "57014"
_MYSQL_TOO_LONG = (1969, 3024)
"""The errors of MariaDB and of MySQL."""


@contextmanager
def shortly(connection: Connection, limit: timedelta) -> Iterator[None]:
    """Statements on this connection that take longer raise the driver's error.

    On PostgreSQL they are one transaction, and its end also ends one that the connection was in.
    """
    if connection.dialect.name == "postgresql":
        apart = connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
        if apart:
            connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(limited_to(limit))
        try:
            yield
        finally:
            # After a COMMIT the driver keeps its prepared statements; where a statement has failed, the server rolls back.
            with suppress(Exception):  # the connection may be gone, and nobody uses it again then
                connection.exec_driver_sql("COMMIT") if apart else connection.rollback()
        return
    milliseconds = limit // timedelta(milliseconds=1)
    mariadb = getattr(connection.dialect, "is_mariadb", False)
    name, value = ("max_statement_time", milliseconds / 1000) if mariadb else ("max_execution_time", milliseconds)
    before = connection.exec_driver_sql(f"SELECT @@SESSION.{name}").scalar_one()
    connection.exec_driver_sql(f"SET SESSION {name} = {value}")
    try:
        yield
    finally:
        with suppress(Exception):  # the connection may be gone, and nobody uses it again then
            connection.exec_driver_sql(f"SET SESSION {name} = {before}")


@contextmanager
def within(cursor: Cursor, limit: timedelta) -> Iterator[None]:
    """A transaction on a cursor that is in none. A statement that takes longer raises the driver's error."""
    cursor.execute("BEGIN")
    try:
        cursor.execute(limited_to(limit))
        yield
        cursor.execute("COMMIT")
    except Exception:
        with suppress(Exception):  # the connection may be gone, and the first error says so
            cursor.execute("ROLLBACK")
        raise


def limited_to(limit: timedelta) -> str:
    """SQL that sets the limit for the rest of a transaction."""
    return f"SET LOCAL statement_timeout = {limit // timedelta(milliseconds=1)}"


def unlimited(connection: Connection) -> None:
    """The transaction's statements take as long as they take, whatever database and account say. For work that would be
    broken off each time: it reads all of a log, or waits for others as long as it says itself."""
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")


def took_too_long(error: BaseException) -> bool:
    """Whether the database canceled the statement, because of its time limit or on somebody's command."""
    return getattr(error, "sqlstate", None) == _CANCELED or error.args[:1] in [(each,) for each in _MYSQL_TOO_LONG]
