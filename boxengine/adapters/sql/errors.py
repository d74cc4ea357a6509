"""Errors of the driver, translated where they enter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from boxengine.errors import StoreUnavailable


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
