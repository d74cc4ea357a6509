"""Chooses the statements of a box. Each dialect is imported only when needed: it imports a driver, or a SQLAlchemy dialect."""

# ruff: noqa: PLC0415
from __future__ import annotations

from datetime import timedelta

from boxengine.adapters.sql.dialects.base import BoxStatements
from boxengine.adapters.sql.log.tables import LogTable
from boxengine.adapters.sql.shape.tables import BoxTable
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
