"""Chooses the dialect for a database. Each is imported only when needed: it imports a driver, or a SQLAlchemy dialect."""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Table

from boxengine.adapters.sql.comments import CommentingCursor, DeliveryComment
from boxengine.adapters.sql.dialects.base import BoxStatements, Cursor
from boxengine.adapters.sql.dialects.inserts import Inserts
from boxengine.adapters.sql.log.tables import LogTable
from boxengine.adapters.sql.tables import BoxTable
from boxengine.errors import BoxError


def statements_for(
    dialect: str, table: BoxTable, *, idle_timeout: timedelta, light: int, log: LogTable | None = None
) -> BoxStatements:
    """The statements of a box's table in this database's dialect.

    Args:
        log: the log's tables, if the box has ``storage: log``.
        light: bytes up to which a payload is read with its row.

    Raises:
        BoxError: a database that boxengine cannot deliver from.
    """
    match dialect:
        case "postgresql":
            timeout = round(idle_timeout.total_seconds() * 1000)
            if log is not None:
                from boxengine.adapters.sql.log.statements import LogStatements

                return LogStatements(table, log, idle_timeout_ms=timeout, light=light)
            from boxengine.adapters.sql.dialects.postgresql import PostgresStatements

            return PostgresStatements(table, idle_timeout_ms=timeout, light=light)
        case "mysql" | "mariadb":
            from boxengine.adapters.sql.dialects.mysql import MySqlStatements

            return MySqlStatements(table, light=light)
        case _:
            raise BoxError(f"boxengine delivers from PostgreSQL, MySQL and MariaDB, not from {dialect}")


def inserts_for(dialect: str, table: Table, *, identities: Sequence[str], inbox: bool) -> Inserts:
    """The insert statements of a table in this database's dialect.

    Raises:
        BoxError: a database that boxengine does not write to.
    """
    match dialect:
        case "postgresql":
            from boxengine.adapters.sql.dialects.postgresql_inserts import PostgresInserts

            return PostgresInserts(table, identities=identities, inbox=inbox)
        case "mysql" | "mariadb":
            from boxengine.adapters.sql.dialects.mysql_inserts import MySqlInserts

            return MySqlInserts(table, identities=identities, inbox=inbox)
        case "sqlite":
            from boxengine.adapters.sql.dialects.sqlite_inserts import SqliteInserts

            return SqliteInserts(table, identities=identities, inbox=inbox)
        case _:
            raise BoxError(f"boxengine writes to PostgreSQL, MySQL, MariaDB and SQLite, not to {dialect}")


def cursor_of(connection: Connection) -> Cursor:
    """A cursor of the underlying driver; on PostgreSQL one that reads results in binary form, which saves decoding."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        return driver.cursor(binary=True)
    return driver.cursor()


def commented(connection: Connection, cursor: Cursor, comment: DeliveryComment) -> Cursor:
    """Wraps the cursor so that each of its statements ends in the comment."""
    if connection.dialect.name == "postgresql":
        # Each comment changes the text, and each text would become a prepared statement that is never used again.
        return CommentingCursor(cursor, comment, prepare=False)
    return CommentingCursor(cursor, comment)
