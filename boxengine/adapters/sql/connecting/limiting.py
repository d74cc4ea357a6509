"""Gives a statement a shorter time limit than its connection has, where an answer may be left out (PostgreSQL)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from boxengine.adapters.sql.connecting.cursors import Cursor

SHORT = timedelta(milliseconds=50)
"""For statements that somebody waits for, or that are asked again and again."""
_CANCELED = "57014"


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


def took_too_long(error: BaseException) -> bool:
    """Whether the database canceled the statement, because of its time limit or on somebody's command."""
    return getattr(error, "sqlstate", None) == _CANCELED
