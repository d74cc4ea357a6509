"""Cursors of the driver, on which the statements of deliveries run without SQLAlchemy in between."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection

Cursor = Any
"""A DBAPI cursor of the driver: psycopg, PyMySQL, mysqlclient."""
Opened = Callable[[], AbstractContextManager[Cursor]]
"""Opens a cursor on which each statement sees what was committed before it. Nothing that it does is committed for it."""


def cursor_of(connection: Connection) -> Cursor:
    """A cursor of the underlying driver; on PostgreSQL one that reads results in binary form, which saves decoding."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "postgresql":
        return driver.cursor(binary=True)
    return driver.cursor()
