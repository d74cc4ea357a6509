"""Errors of the driver, translated where they enter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError, StatementError

from boxengine.errors import InvalidItem, StoreUnavailable

REFUSALS = ("P0001", "54", "42804", "42846")
"""SQLSTATEs, or their classes, that PostgreSQL does not count to data and integrity though the row is to blame: a
trigger's RAISE EXCEPTION, limits such as the size of an index entry, and values of a wrong type."""

MYSQL_REFUSALS = frozenset({1292, 1366, 1411, 1441, 1644, 3140, 3819, 4025})
"""The same for MySQL and MariaDB, by number: wrong moments and characters, a trigger's SIGNAL, no JSON, CHECK constraints."""


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turns errors of the database driver into ``StoreUnavailable``, and forgets broken connections.

    Statements run on the driver's own cursor, so SQLAlchemy does not see when a connection has gone; after one has,
    the pool's idle ones are no better, and are dropped as SQLAlchemy itself would do.
    """
    driver_error = engine.dialect.loaded_dbapi.Error
    try:
        yield
    except driver_error as error:
        if connection_lost(engine, error):
            engine.dispose()
        raise StoreUnavailable(sentence(error)) from error
    except SQLAlchemyError as error:
        raise StoreUnavailable(sentence(getattr(error, "orig", None) or error)) from error


@contextmanager
def blaming_the_row() -> Iterator[None]:
    """Turns the errors that a row will meet again, however often it is written, into ``InvalidItem``."""
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated or not _blames_the_row(error):
            raise
        raise InvalidItem(sentence(error.orig or error)) from error
    except (StatementError, UnicodeError) as error:
        # A value that cannot even be sent.
        raise InvalidItem(sentence(getattr(error, "orig", None) or error)) from error


def _blames_the_row(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError | DataError):
        return True
    state = getattr(error.orig, "sqlstate", "")
    if state is None:
        # The driver speaks, not the server: it cannot send such a value.
        return isinstance(error, ProgrammingError)
    number = next(iter(error.orig.args), None) if error.orig is not None else None
    return str(state).startswith(REFUSALS) or number in MYSQL_REFUSALS


def connection_lost(engine: Engine, error: Exception) -> bool:
    """Whether the error of the driver means that its connection, and with it probably the server, has gone."""
    if engine.dialect.is_disconnect(error, None, None):  # type: ignore[arg-type]
        return True
    # psycopg's dialect wants to look at the connection; the error tells too: by PostgreSQL's classes "connection
    # exception" and "operator intervention, shutdown", or by carrying no state, for it is not the server that speaks.
    state = getattr(error, "sqlstate", "")
    return isinstance(error, engine.dialect.loaded_dbapi.OperationalError) and (
        state is None or state.startswith(("08", "57P"))
    )


def sentence(error: BaseException) -> str:
    """The first line of what the driver says, without the statement and the parameters."""
    lines = str(error).strip().splitlines()
    return f"the database: {lines[0] if lines else type(error).__name__}"
