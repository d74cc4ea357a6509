"""Connections for questions that only read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine

from boxengine.adapters.sql.connecting.engine import is_limited_by_transaction


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A connection on which, on PostgreSQL, each statement is a transaction of its own.

    That spares a BEGIN and a ROLLBACK for each question, and the driver's prepared statements, which it drops with each ROLLBACK.
    """
    with engine.connect() as connection:
        # MySQL sends no BEGIN, and its driver would spend as much on the setting itself.
        if engine.dialect.name == "postgresql" and not is_limited_by_transaction(connection):
            connection.execution_options(isolation_level="AUTOCOMMIT")
        yield connection
