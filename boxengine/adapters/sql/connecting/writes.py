"""Checks that a server accepts writes. A standby, or a server made read-only, answers everything else as usual.

A worker must not keep a connection to one: it would never deliver again, on MySQL it would send the same items again and
again, and a pool does not drop connections that work.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from sqlalchemy import URL, Engine, event
from sqlalchemy.exc import DisconnectionError

READ_ONLY = "25006"
"""SQLSTATE read_only_sql_transaction."""
MYSQL_READ_ONLY = frozenset({1792, 1836})
"""Read-only transaction, read-only mode."""
MYSQL_OPTION = 1290
"""The server runs with an option that forbids the statement; ``--read-only`` is one of several."""
_PROBLEM = "the server takes no writes"
_WANTED = "target_session_attrs"
_WRITABLE = {_WANTED: "read-write"}
_STANDBY, _READ_ONLY = b"in_hot_standby", b"default_transaction_read_only"
"""What PostgreSQL 14 and later report with an answer, once it has changed."""
_WAS_READ_ONLY = "boxengine_was_read_only"
_QUESTIONS = {
    "postgresql": "SHOW transaction_read_only",
    "mysql": "SELECT @@global.read_only",
    "mariadb": "SELECT @@global.read_only",
}


def refuses_writes(error: BaseException) -> bool:
    """Whether the driver's error says that the server accepts no writes at all."""
    if getattr(error, "sqlstate", None) == READ_ONLY:
        return True
    number = next(iter(error.args), None)
    return number in MYSQL_READ_ONLY or (number == MYSQL_OPTION and re.search("read[-_]only", str(error)) is not None)


def follow(engine: Engine, *, writes: bool) -> None:
    """Keeps the connections to servers that accept writes.

    Connections to a server that has become read-only since are dropped. What only reads gets no error there, and would go on
    reading, whatever has become of the address. MySQL does not tell; the pool renews its connections there.

    Args:
        writes: whether new connections to servers that accept none are refused. Otherwise such a server is taken only if none of
            the hosts accepts writes; libpq would take the first that answers.
    """
    if engine.driver == "psycopg":
        event.listen(engine, "connect", _note_whether_read_only)
        event.listen(engine, "checkout", partial(_drop_if_read_only_now, engine))
        if not writes and _WANTED not in engine.url.query:
            event.listen(engine, "do_connect", _connected_to_writable)
    elif writes:  # libpq asks while it connects, see ``connect_arguments``; MySQL's driver does not
        event.listen(engine, "connect", lambda connection, _record: _refuse_unless_writable(engine, connection))


def connect_arguments(address: URL) -> dict[str, str]:
    """Options that make libpq skip servers that accept no writes, and try the next of several hosts.

    From PostgreSQL 14 on a server reports this by itself; an older one is asked. An option that the URL sets is kept.
    """
    return {} if address.get_backend_name() != "postgresql" or _WANTED in address.query else dict(_WRITABLE)


def check(engine: Engine, cursor: Any) -> None:
    """Raises unless the server accepts writes; costs as much as ``SELECT 1``.

    Raises:
        Error: the driver's.
    """
    cursor.execute(_QUESTIONS[engine.dialect.name])
    (answer,) = cursor.fetchone()
    if str(answer).lower() not in ("off", "0"):
        raise refusal(engine.dialect.loaded_dbapi)


def refusal(driver: Any) -> Exception:
    """The error that the driver would raise at a write."""
    own = getattr(getattr(driver, "errors", None), "ReadOnlySqlTransaction", None)
    why = "it is a standby, or was made read-only (read_only)"
    error: Exception = own(_PROBLEM) if own else driver.OperationalError(MYSQL_OPTION, f"{_PROBLEM}: {why}")
    return error


def _refuse_unless_writable(engine: Engine, connection: Any) -> None:
    """Refuses a new connection. The pool closes it: closed twice, a PyMySQL connection leaves a traceback in the log.

    Older versions of the pool only drop it, and MySQL's drivers close a connection once nothing refers to it.
    """
    with connection.cursor() as cursor:
        check(engine, cursor)
    connection.rollback()


def _is_read_only(connection: Any) -> bool:
    """What the last answer on this connection has told; False for an older server, which does not tell."""
    told = connection.pgconn.parameter_status
    return bool(told(_READ_ONLY) == b"on" or told(_STANDBY) == b"on")


def _note_whether_read_only(connection: Any, record: Any) -> None:
    record.info[_WAS_READ_ONLY] = _is_read_only(connection)


def _drop_if_read_only_now(engine: Engine, connection: Any, record: Any, _proxy: object) -> None:
    if not record.info[_WAS_READ_ONLY] and _is_read_only(connection):
        engine.dispose()
        raise DisconnectionError


def _connected_to_writable(dialect: Any, _record: object, arguments: Any, options: Any) -> Any:
    """None: connect as if nobody had asked."""
    if "," not in str(options.get("host", "")):
        return None
    try:
        return dialect.connect(*arguments, **{**options, **_WRITABLE})
    except dialect.loaded_dbapi.OperationalError:
        return None
