"""Sets up the worker's database connections, which differ from an application's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from typing import Any

from psycopg import pq
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import PoolResetState

from boxengine.adapters.sql.connecting import own_settings
from boxengine.adapters.sql.connecting.ended import drop_ended
from boxengine.adapters.sql.connecting.login import log_in
from boxengine.adapters.sql.connecting.pool import DisposablePool
from boxengine.adapters.sql.connecting.pooler import is_pooled
from boxengine.adapters.sql.connecting.tls import sharing
from boxengine.adapters.sql.connecting.writes import connect_arguments, follow
from boxengine.errors import BoxError, JobLost, JobTimeout
from boxengine.ports.credentials import Ask

CONNECT_TIMEOUT = 5
"""Seconds."""
ROW_LOCK_WAIT = 10
"""Seconds that a statement waits for rows, or a table, that somebody else has locked: on MySQL each; on PostgreSQL those of
transactions that set it, by ``limit_lock_wait``."""
_POOLED = "boxengine_pooled"
SILENCE_MS = 30_000
"""Milliseconds without an acknowledgement from the peer after which a connection is closed."""


def connect(
    url: str,
    *,
    connections: int,
    idle_timeout: timedelta = timedelta(seconds=180),
    prepared: bool | None = None,
    statement_limit: timedelta | None = None,
    lock_limit: timedelta | None = None,
    writes: bool = False,
    anywhere: bool = False,
    patient: bool = False,
    password: Ask | None = None,
) -> Engine:
    """An engine for the worker; no connection is made yet. Options of the URL win over those that boxengine sets.

    Args:
        url: SQLAlchemy URL; ``postgresql://`` means psycopg, ``mysql://`` PyMySQL.
        connections: how many are kept open at most; a few more may be open for a short while.
        idle_timeout: MySQL closes a connection that has been silent for so long, which ends its claim.
            On PostgreSQL each claim sets it.
        prepared: whether statements are prepared on the server; None: only if there is no connection pooler before it,
            which may send a statement to a server that has not prepared it.
        statement_limit: the database cancels a statement after this time; None: its own setting applies.
        lock_limit: a statement waits no longer for a table that somebody else has locked; MySQL counts whole seconds. Without
            effect behind a pooler, which hands the session's settings to other clients.
        writes: whether a read-only server counts as unavailable. The address is resolved again for each connection.
        anywhere: whether the first of several hosts will do, as for a replica; otherwise one that accepts writes comes first, and
            connections to a server that became read-only are dropped.
        patient: whether an answer may take any time, such as that to the statement that makes an index. Otherwise, on MySQL, a
            server that is silent for longer than any of the worker's statements takes counts as gone.
        password: what is asked for the password in force before each connection; None: the URL holds it.

    Raises:
        BoxError: the URL makes no sense, or its driver is not installed.
    """
    try:
        address = address_of(url)
        _refuse_unknown_options(address)
        silence = max(1, math.ceil(idle_timeout.total_seconds()))
        engine = create_engine(
            address,
            # Rows must be read under a newer snapshot than the locks, whatever the database's default isolation level is.
            isolation_level="READ COMMITTED",
            poolclass=DisposablePool,
            pool_size=connections,
            max_overflow=4,
            pool_timeout=30,
            # MySQL's limit also closes idle connections in the pool, so the pool replaces them well before it.
            pool_recycle=-1 if address.get_backend_name() == "postgresql" else silence / 2,
            pool_reset_on_return=None,  # see ``_reset``
            # Parameters may be confidential, and errors end up in logs.
            hide_parameters=True,
            connect_args=_connect_args(address, silence=silence, patient=patient)
            | (connect_arguments(address) if writes else {}),
        )
    except (ArgumentError, NoSuchModuleError) as error:
        raise BoxError(f"database.url: {error}") from error
    except ModuleNotFoundError as error:
        raise BoxError(f"database.url: the driver is not installed: {error.name}; pip install {error.name}") from error
    if _INIT in address.query:
        ours = _settings(silence, patient=patient)
        event.listen(engine, "connect", partial(_complete_session, theirs=str(address.query[_INIT]), ours=ours))
    if password is not None:
        log_in(engine, password)  # before all else that connects
    drop_ended(engine)
    if not anywhere:
        follow(engine, writes=writes)
    event.listen(engine, "reset", partial(_reset, engine))
    _adapt(engine, prepared=prepared)
    if statement_limit is not None:
        _limit_statements(engine, statement_limit)
    if lock_limit is not None:
        event.listen(engine, "connect", partial(_limit_locks, engine, lock_limit))
    return engine


def _adapt(engine: Engine, *, prepared: bool | None) -> None:
    """What this database or its driver needs, and others do not."""
    if engine.dialect.name != "postgresql":
        event.listen(engine, "connect", partial(_quote_alike, first=[]))
    if engine.driver == "pymysql":
        event.listen(engine, "do_connect", _connected)
        event.listen(engine, "handle_error", _drop_if_struck)
    if engine.driver == "psycopg":
        event.listen(engine, "connect", partial(_look_for_pooler, prepared=prepared))
        event.listen(engine, "connect", _make_own_settings)


def _connected(dialect: Any, _record: object, arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Connects. What PyMySQL raises over its options, or over a package that it lacks, is no error of its own kind."""
    try:
        return sharing(dialect.loaded_dbapi.connections.Connection)(*arguments, **options)
    except RuntimeError as error:
        raise BoxError(f"database.url: {error}; {_NEEDS_A_PACKAGE}") from error
    except (TypeError, ValueError, OSError) as error:
        # An error about one of the files that TLS needs does not say which.
        tls = options.get("ssl") if isinstance(error, OSError) else None
        files = ", ".join(str(tls[name]) for name in ("ca", "cert", "key") if name in tls) if tls else ""
        reason = getattr(error, "strerror", None) or error
        raise BoxError(f"database.url: {reason}{files and f'; check {files}'}") from error


def _drop_if_struck(context: ExceptionContext) -> None:
    """Drops a connection in whose use a job's watchdog has stopped the thread. It may have struck between a statement and its
    answer, which PyMySQL would take for the answer to the next statement.
    """
    if isinstance(context.original_exception, JobLost | JobTimeout):
        context.is_disconnect, context.invalidate_pool_on_disconnect = True, False


def limit_lock_wait(connection: Connection) -> None:
    """The transaction's statements wait for locks no longer than MySQL's do. Otherwise a transaction that somebody has left open
    would keep the thread waiting for as long, without a word."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {ROW_LOCK_WAIT * 1000}")


def _limit_locks(engine: Engine, limit: timedelta, connection: Any, _record: Any) -> None:
    milliseconds = max(1, round(limit.total_seconds() * 1000))
    seconds = max(1, round(limit.total_seconds()))
    with _closed_on_error(connection):
        if engine.dialect.name != "postgresql":
            _run(connection, f"SET SESSION lock_wait_timeout = {seconds}")
        elif not (engine.driver == "psycopg" and is_pooled(connection)):
            _run(connection, f"SET lock_timeout = {milliseconds}")


def _limit_statements(engine: Engine, limit: timedelta) -> None:
    """Sets the limit for each transaction: behind a pooler, other clients share the session."""
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


def is_limited_by_transaction(connection: Connection) -> bool:
    """Whether the time limit of its statements is set anew in each transaction, and does not apply outside of one."""
    return bool(connection.info.get(_POOLED))


def _run(connection: Any, statement: str) -> Any:
    with closing(connection.cursor()) as cursor:
        cursor.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    connection.commit()
    return row[0] if row else None


def _reset(engine: Engine, connection: Any, record: Any, state: PoolResetState) -> None:
    """Resets a connection as the pool itself would, but logs no traceback for one that has been lost.

    The same if a job's watchdog stops the thread just here: the pool keeps that error from the handler, and it is raised again
    later.
    """
    if state.terminate_only or state.transaction_was_reset:
        return
    try:
        connection.rollback()
    except (engine.dialect.loaded_dbapi.Error, JobLost, JobTimeout):
        record.invalidate()


def address_of(url: str) -> URL:
    """Parses the URL; uses the worker's driver if it names none, or one that only applications use.

    Raises:
        ArgumentError: the URL makes no sense.
    """
    try:
        address = make_url(url)
    except ValueError:
        # The original message would quote a part of the URL that may be a password.
        raise ArgumentError("the port is not a number, or a character of the password needs percent-encoding") from None
    driver = _OURS.get(address.drivername)
    if driver is None:
        return address
    return _translated(address).set(drivername=driver)


def _translated(address: URL) -> URL:
    """Renames asyncpg's options to libpq's; drops those that only asyncpg or SQLAlchemy's dialect knows."""
    if not address.drivername.endswith("+asyncpg"):
        return address
    query = {_IN_LIBPQ.get(name, name): value for name, value in address.query.items() if name not in _ONLY_ASYNCPG}
    return address.set(query=query)


def _refuse_unknown_options(address: URL) -> None:
    """Refuses an option that libpq and psycopg do not have: each connection would fail, as if the server were down.

    Raises:
        ArgumentError: it has one.
    """
    if address.drivername != "postgresql+psycopg" or not address.query:
        return
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} | _OF_PSYCOPG
    for name in address.query:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise ArgumentError(f"psycopg has no option {name}" + (f"; did you mean {near[0]}?" if near else ""))


def _look_for_pooler(connection: Any, _record: object, *, prepared: bool | None) -> None:
    """Finds out whether a pooler stands before the server, and makes the driver ignore requests to prepare statements."""
    with _closed_on_error(connection):
        pooled = is_pooled(connection)
        if prepared is False or (pooled and prepared is None):
            connection.prepare_threshold = None


def _make_own_settings(connection: Any, _record: object) -> None:
    with _closed_on_error(connection):
        # A transaction around it would cost two round trips.
        connection.autocommit = True
        own_settings.set_on(connection)
        connection.autocommit = False


@contextmanager
def _closed_on_error(connection: Any) -> Iterator[None]:
    """Closes a new connection that cannot be set up; older versions of the pool would leave it open."""
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
_OF_PSYCOPG = frozenset({"autocommit", "context", "cursor_factory", "prepare_threshold", "row_factory"})
"""Options of psycopg that libpq does not have."""
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


def _connect_args(address: URL, *, silence: int, patient: bool) -> dict[str, Any]:
    """What boxengine adds to the URL's options."""
    if address.get_backend_name() == "postgresql":
        # The server converts texts from its own encoding, and the driver returns text as str: from a database without
        # an encoding (SQL_ASCII) it would otherwise return bytes.
        return _unless_said(_OF_POSTGRESQL, address) | {"client_encoding": "utf8"}
    limit = max(silence, 2 * ROW_LOCK_WAIT)
    own = {
        "connect_timeout": CONNECT_TIMEOUT,
        # Longer than any of the worker's statements takes, lock waits included: past it, the peer has gone.
        **({} if patient else {"read_timeout": limit}),
        "write_timeout": limit,
        _INIT: _session_settings(_settings(silence, patient=patient)),
    }
    return _unless_said(own, address)


def _unless_said(options: Mapping[str, Any], address: URL) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in address.query}


def _settings(silence: int, *, patient: bool) -> Mapping[str, int]:
    """Those of MySQL's sessions."""
    own = {"innodb_lock_wait_timeout": ROW_LOCK_WAIT, "wait_timeout": silence} | _FOR_PEOPLE
    # The server's own limit for a locked table is a day.
    return own if patient else own | {"lock_wait_timeout": ROW_LOCK_WAIT}


def _session_settings(ours: Mapping[str, int], *, besides: str = "") -> str:
    """The statement that makes these settings, without those that another statement mentions; empty if none is left."""

    def unsaid(settings: Mapping[str, int]) -> list[str]:
        return [
            f"{name} = {value}"
            for name, value in settings.items()
            if not re.search(rf"\b{name}\b", besides, re.IGNORECASE)
        ]

    left, of_mariadb = unsaid(ours), "".join(f", {setting}" for setting in unsaid(_OF_MARIADB))
    # Only MariaDB reads what is between the marks.
    return f"SET SESSION {', '.join(left)} /*M!100300 {of_mariadb} */" if left else ""


def _complete_session(connection: Any, _record: object, *, theirs: str, ours: Mapping[str, int]) -> None:
    """Makes boxengine's settings after the statement in the URL, which the driver has sent."""
    statement = _session_settings(ours, besides=theirs)
    if statement:
        with _closed_on_error(connection):
            _run(connection, statement)


def _quote_alike(connection: Any, _record: object, *, first: list[str]) -> None:
    """Lets names be quoted as on the engine's first connection, which SQLAlchemy has asked how: somebody may change the server's
    ``sql_mode`` since. SQLAlchemy would then find no column in any table, or write names as texts.
    """
    with _closed_on_error(connection), closing(connection.cursor()) as cursor:
        cursor.execute("SELECT @@SESSION.sql_mode")
        (mode,) = cursor.fetchone()
        first[:] = first or [mode]
        if (_ANSI in mode) != (_ANSI in first[0]):
            cursor.execute("SET SESSION sql_mode = %s", first)


_INIT = "init_command"
_ANSI = "ANSI_QUOTES"
_NEEDS_A_PACKAGE = (
    "install it where boxengine runs; for caching_sha2_password, which accounts of MySQL 8 use, TLS will do "
    "in its place"
)
"""What to do where PyMySQL lacks one for the way in which an account authenticates."""
_OF_MARIADB = dict.fromkeys(
    ("idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout"), 0
)
"""A batch lasts as long as its transports' calls. How long a worker may be silent in it, ``wait_timeout`` says."""
_FOR_PEOPLE = {"sql_safe_updates": 0, "sql_select_limit": 2**64 - 1}
"""What a server may have for all its sessions, to keep people from accidents. The outcomes of a batch are written by joins, which
the first refuses, and the second cuts off answers, without a word."""
_OF_POSTGRESQL = {
    "application_name": "boxengine",
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": SILENCE_MS,
}
