"""Checks that a server accepts writes. A standby, or a server made read-only, answers everything else as usual.

A worker must not keep a connection to one: it would never deliver again, on MySQL it would send the same items again and
again, and a pool does not drop connections that work.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import URL, Engine, event

READ_ONLY = "25006"
"""SQLSTATE read_only_sql_transaction."""
MYSQL_READ_ONLY = frozenset({1792, 1836})
"""Read-only transaction, read-only mode."""
MYSQL_OPTION = 1290
"""The server runs with an option that forbids the statement; ``--read-only`` is one of several."""
_PROBLEM = "the server takes no writes: it is a standby, or was made read-only"
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


def demand(engine: Engine) -> None:
    """Refuses new connections to servers that accept no writes from now on."""
    if engine.dialect.name != "postgresql":
        # libpq asks while it connects, see ``connect_arguments``.
        event.listen(engine, "connect", lambda connection, _record: _refuse_unless_writable(engine, connection))


def connect_arguments(address: URL) -> dict[str, str]:
    """Options that make libpq skip servers that accept no writes, and try the next of several hosts.

    From PostgreSQL 14 on a server reports this by itself; an older one is asked. An option that the URL sets is kept.
    """
    wanted = "target_session_attrs"
    return {} if address.get_backend_name() != "postgresql" or wanted in address.query else {wanted: "read-write"}


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
    error: Exception = own(_PROBLEM) if own else driver.OperationalError(MYSQL_OPTION, f"{_PROBLEM} (read_only)")
    return error


def _refuse_unless_writable(engine: Engine, connection: Any) -> None:
    """Refuses a new connection. The pool closes it: closed twice, a PyMySQL connection leaves a traceback in the log.

    Older versions of the pool only drop it, and MySQL's drivers close a connection once nothing refers to it.
    """
    with connection.cursor() as cursor:
        check(engine, cursor)
    connection.rollback()
