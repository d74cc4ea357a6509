"""Whether a server takes writes. A standby, or a server that was made read-only, answers everything else as ever.

A worker must not keep a connection to one: it would never deliver again, on MySQL it would send the same items again and
again, and a pool does not part with connections that work.
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
    """Whether the driver's error says that the server takes no writes at all."""
    if getattr(error, "sqlstate", None) == READ_ONLY:
        return True
    number = next(iter(error.args), None)
    return number in MYSQL_READ_ONLY or (number == MYSQL_OPTION and re.search("read[-_]only", str(error)) is not None)


def demand(engine: Engine) -> None:
    """From now on a connection to a server that takes no writes is not opened."""
    if engine.dialect.name != "postgresql":
        # PostgreSQL's own library asks while it connects, see ``connect_arguments``.
        event.listen(engine, "connect", lambda connection, _record: _refuse_unless_writable(engine, connection))


def connect_arguments(address: URL) -> dict[str, str]:
    """What makes PostgreSQL's library pass over servers that take no writes, and take the next host of several.

    A server tells by itself from PostgreSQL 14 on; an older one is asked. Left alone where the URL says otherwise.
    """
    wanted = "target_session_attrs"
    return {} if address.get_backend_name() != "postgresql" or wanted in address.query else {wanted: "read-write"}


def check(engine: Engine, cursor: Any) -> None:
    """Returns if the server takes writes; costs what ``SELECT 1`` does.

    Raises:
        Error: the driver's.
    """
    cursor.execute(_QUESTIONS[engine.dialect.name])
    (answer,) = cursor.fetchone()
    if str(answer).lower() not in ("off", "0"):
        raise refusal(engine.dialect.loaded_dbapi)


def refusal(driver: Any) -> Exception:
    """What the driver would raise, were something written."""
    own = getattr(getattr(driver, "errors", None), "ReadOnlySqlTransaction", None)
    error: Exception = own(_PROBLEM) if own else driver.OperationalError(MYSQL_OPTION, f"{_PROBLEM} (read_only)")
    return error


def _refuse_unless_writable(engine: Engine, connection: Any) -> None:
    """Closing a refused connection is left to the pool: closed twice, PyMySQL's leaves a traceback in the log.

    An older pool just forgets it, and MySQL's drivers close what nobody refers to.
    """
    with connection.cursor() as cursor:
        check(engine, cursor)
    connection.rollback()
