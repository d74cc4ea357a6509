"""Sets up the worker's database connections, which differ from an application's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import PoolResetState

from boxengine.adapters.sql.pool import DisposablePool
from boxengine.adapters.sql.pooler import is_pooled
from boxengine.adapters.sql.writes import connect_arguments, demand
from boxengine.errors import BoxError

CONNECT_TIMEOUT = 5
"""Seconds."""
ROW_LOCK_WAIT = 10
"""Seconds that a statement waits for rows locked by somebody else (MySQL)."""
_POOLED = "boxengine_pooled"
SILENCE_MS = 30_000
"""How long a connection's peer may acknowledge nothing before the connection is closed."""


def connect(
    url: str,
    *,
    connections: int,
    idle_timeout: timedelta = timedelta(seconds=180),
    prepared: bool | None = None,
    statement_limit: timedelta | None = None,
    writes: bool = False,
) -> Engine:
    """An engine for the worker; no connection is made yet.

    Args:
        url: SQLAlchemy URL; ``postgresql://`` means psycopg, ``mysql://`` PyMySQL.
        connections: kept open at most; a few more for a short while.
        idle_timeout: after which MySQL closes a connection that has fallen silent, and with it ends its claim.
            PostgreSQL is told in each claim.
        prepared: whether statements are prepared on the server; None: unless a connection pooler stands before it,
            which may send a statement to a server that has not prepared it.
        statement_limit: after which the database breaks a statement off; None: its own setting.
        writes: whether a server that takes no writes counts as out of reach. The address is looked up anew for each connection.

    Raises:
        BoxError: the URL makes no sense, or its driver is not installed.
    """
    try:
        address = address_of(url)
        silence = max(1, math.ceil(idle_timeout.total_seconds()))
        engine = create_engine(
            address,
            # Between the locks and the rows the snapshot must move on, whatever the database's default is.
            isolation_level="READ COMMITTED",
            poolclass=DisposablePool,
            pool_size=connections,
            max_overflow=4,
            pool_timeout=30,
            # MySQL's limit also closes idle connections in the pool, so they are renewed well before it.
            pool_recycle=-1 if address.get_backend_name() == "postgresql" else silence / 2,
            pool_reset_on_return=None,  # see ``_reset``
            # What is written may be anybody's business, and errors are for logs.
            hide_parameters=True,
            connect_args=_connect_args(address.get_backend_name(), silence=silence)
            | (connect_arguments(address) if writes else {}),
        )
    except (ArgumentError, NoSuchModuleError) as error:
        raise BoxError(f"database.url: {error}") from error
    except ModuleNotFoundError as error:
        raise BoxError(f"database.url: the driver is not installed: {error.name}; pip install {error.name}") from error
    if writes:
        demand(engine)
    event.listen(engine, "reset", partial(_reset, engine))
    if engine.driver == "psycopg" and prepared is not True:
        event.listen(engine, "connect", partial(_stop_preparing, found_out=prepared is None))
    if statement_limit is not None:
        _limit_statements(engine, statement_limit)
    return engine


def _limit_statements(engine: Engine, limit: timedelta) -> None:
    """Behind a pooler the session is somebody else's too, so there the limit is set for each transaction."""
    milliseconds = max(1, round(limit.total_seconds() * 1000))

    def on_connect(connection: Any, record: Any) -> None:
        if engine.dialect.name == "postgresql":
            with _closed_on_error(connection):
                record.info[_POOLED] = engine.driver == "psycopg" and is_pooled(connection)
                if not record.info[_POOLED]:
                    _run(connection, f"SET statement_timeout = {milliseconds}")
            return
        mariadb = _run(connection, "SELECT VERSION() LIKE '%MariaDB%'")
        seconds, selects = f"max_statement_time = {milliseconds / 1000}", f"max_execution_time = {milliseconds}"
        _run(connection, f"SET SESSION {seconds if mariadb else selects}")

    def on_begin(connection: Connection) -> None:
        if connection.info.get(_POOLED):
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {milliseconds}")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)


def _run(connection: Any, statement: str) -> Any:
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    connection.commit()
    return row[0] if row else None


def _reset(engine: Engine, connection: Any, record: Any, state: PoolResetState) -> None:
    """As the pool does it itself, but that a connection which was lost meanwhile leaves no traceback in the log."""
    if state.terminate_only or state.transaction_was_reset:
        return
    try:
        connection.rollback()
    except engine.dialect.loaded_dbapi.Error:
        record.invalidate()


def address_of(url: str) -> URL:
    """The URL as SQLAlchemy takes it apart, with the worker's driver where it names none, or one that only applications use.

    Raises:
        ArgumentError: it makes no sense.
    """
    try:
        address = make_url(url)
    except ValueError:
        # Its message would quote part of what may be a password.
        raise ArgumentError("the port is not a number, or a character of the password needs percent-encoding") from None
    driver = _OURS.get(address.drivername)
    if driver is None:
        return address
    return _translated(address).set(drivername=driver)


def _translated(address: URL) -> URL:
    """What asyncpg calls otherwise than libpq, in libpq's words; what only asyncpg or SQLAlchemy's dialect knows goes."""
    if not address.drivername.endswith("+asyncpg"):
        return address
    query = {_IN_LIBPQ.get(name, name): value for name, value in address.query.items() if name not in _ONLY_ASYNCPG}
    return address.set(query=query)


def _stop_preparing(connection: Any, _record: object, *, found_out: bool) -> None:
    """Makes the driver ignore requests to prepare statements."""
    with _closed_on_error(connection):
        if not found_out or is_pooled(connection):
            connection.prepare_threshold = None


@contextmanager
def _closed_on_error(connection: Any) -> Iterator[None]:
    """Closes a new connection that cannot be set up; an older pool would just forget it."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


_POSTGRESQL = ("", "+asyncpg", "+psycopg_async", "+psycopg2", "+psycopg2cffi", "+pg8000")
_MYSQL = ("", "+aiomysql", "+asyncmy", "+mysqlconnector", "+mariadbconnector")
_OURS = {
    **{f"postgresql{driver}": "postgresql+psycopg" for driver in _POSTGRESQL},
    **{f"{name}{driver}": f"{name}+pymysql" for name in ("mysql", "mariadb") for driver in _MYSQL},
}
_IN_LIBPQ = {"ssl": "sslmode", "timeout": "connect_timeout"}
_ONLY_ASYNCPG = frozenset(
    {
        "async_fallback",
        "command_timeout",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "statement_cache_size",
    }
)


def _connect_args(backend: str, *, silence: int) -> dict[str, Any]:
    if backend == "postgresql":
        return {
            "application_name": "boxengine",
            # Whatever the server keeps texts in, it converts them, and the driver reads text as text: from a database without
            # an encoding (SQL_ASCII) it would hand out bytes.
            "client_encoding": "utf8",
            "connect_timeout": CONNECT_TIMEOUT,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": SILENCE_MS,
        }
    return {
        "connect_timeout": CONNECT_TIMEOUT,
        # Longer than any statement of boxengine's, lock waits included: the other end has gone.
        "read_timeout": max(silence, 2 * ROW_LOCK_WAIT),
        "write_timeout": max(silence, 2 * ROW_LOCK_WAIT),
        "init_command": f"SET SESSION innodb_lock_wait_timeout = {ROW_LOCK_WAIT}, wait_timeout = {silence}",
    }
