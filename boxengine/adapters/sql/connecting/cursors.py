"""Cursors of the driver, on which the statements of deliveries run without SQLAlchemy in between."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

Cursor = Any
"""A DBAPI cursor of the driver: psycopg, PyMySQL, mysqlclient."""


def cursor_of(connection: Connection) -> Cursor:
    """A cursor of the underlying driver; on PostgreSQL one that reads results in binary form, which saves decoding."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        return driver.cursor(binary=True)
    return driver.cursor()
