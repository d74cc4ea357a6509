"""Translates the driver's errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError, StatementError

from boxengine.adapters.sql.connecting.limiting import took_too_long
from boxengine.adapters.sql.connecting.login import account_gone, denied
from boxengine.adapters.sql.connecting.writes import READ_ONLY, refuses_writes
from boxengine.errors import (
    InvalidItem,
    NotPermitted,
    StoreConflict,
    StoreTooSlow,
    StoreUnavailable,
    TableMissing,
    TransactionLost,
)

REFUSALS = ("P0001", "54", "42804", "42846")
"""SQLSTATEs, or their classes, that PostgreSQL does not count to data and integrity though the row is to blame: a
trigger's RAISE EXCEPTION, limits such as the size of an index entry, and values of a wrong type."""

MYSQL_REFUSALS = frozenset({1292, 1366, 1411, 1441, 1644, 3140, 3819, 4025})
"""The same for MySQL and MariaDB, by number: wrong moments and characters, a trigger's SIGNAL, no JSON, CHECK constraints."""

CONFLICTS = frozenset({1205, 1213, 3572})
"""MySQL and MariaDB: a lock wait that timed out, a deadlock, a lock that was not to be waited for."""
LOCK_NOT_AVAILABLE = "55P03"
CONFLICT_STATES = frozenset({"40001", "40P01", LOCK_NOT_AVAILABLE})
"""The same for PostgreSQL."""
_NO_SUCH_TABLE, _NO_SUCH_TABLE_STATE = 1146, "42P01"
_NO_SUCH_COLUMN, _NO_SUCH_COLUMN_STATE = 1054, "42703"
_NO_SAVEPOINT = 1305
_GONE = (
    "the server was restarted, it ended a connection that was silent for too long (wait_timeout), or it refused a packet over "
    "its max_allowed_packet: see the server's log, and raise the limit that it names"
)
_LOCKED = "somebody has locked the table, a migration perhaps, or a row"
_NO_TABLE = "boxengine db create makes the tables of the boxes"
_NO_COLUMN = "boxengine db check says what the tables of the boxes lack, and what adds it"
_NO_SERVER = "check database.url, and that the server runs"
_NO_WRITES = "it is a standby, or was made read-only: let its address lead to a server that accepts writes"
_SAY_NO_WRITES = ("session is read-only", "server is in hot standby mode")
"""What libpq says of a connection that was to be one for writes."""
_NO_ROOM = "the server runs: find out who holds its connections, or raise the limit"
_SAY_NO_ROOM = (
    "too many clients",
    "too many connections",
    "connection slots are reserved",
    "no more connections allowed",
)
"""What PostgreSQL and PgBouncer say. The driver's error about a connection that failed has no SQLSTATE."""
_OF_A_HOST = re.compile(
    r"^- (host: .*?, port: (?:None|'\d+')), hostaddr: (?:None|'[^']*'): (?:connection (?:failed|is bad): )?(.+)$",
    re.MULTILINE,
)
"""Of several hosts of which none would do, psycopg's first line names the last one alone."""
_NEXT_STEPS_BY_STATE = {
    LOCK_NOT_AVAILABLE: _LOCKED,
    _NO_SUCH_TABLE_STATE: _NO_TABLE,
    _NO_SUCH_COLUMN_STATE: _NO_COLUMN,
    "3B001": TransactionLost.BY_A_HANDLER,
    READ_ONLY: _NO_WRITES,
}
"""The same by SQLSTATE, for PostgreSQL."""
_NEXT_STEPS = {
    0: f"the connection was closed: {_GONE}",
    _NO_SUCH_TABLE: _NO_TABLE,
    _NO_SUCH_COLUMN: _NO_COLUMN,
    1040: _NO_ROOM,
    1153: "raise max_allowed_packet on the server, or keep payloads below it with max_payload_bytes",
    1203: _NO_ROOM,
    1205: "another transaction held the rows, or the table, for too long, or a backup held all tables",
    1213: "two transactions waited for each other",
    _NO_SAVEPOINT: TransactionLost.BY_A_HANDLER,
    2002: _NO_SERVER,
    2003: _NO_SERVER,
    1927: "somebody ended the connection with KILL",
    2006: _GONE,
    2013: _GONE,
    4031: "the server ended a connection that was silent for too long: raise wait_timeout",
}
"""By error number, advice that the messages of MySQL and MariaDB lack."""


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
        cause = _behind(error, driver_error)
        if connection_lost(engine, error) or account_gone(engine, cause):
            engine.dispose()
        raise _unavailable(cause) from cause
    except SQLAlchemyError as error:
        cause = _before_rollback(getattr(error, "orig", None) or error)
        if refuses_writes(cause) or (isinstance(error, DBAPIError) and error.connection_invalidated):
            engine.dispose()
        raise _unavailable(cause) from error


def _behind(error: BaseException, kind: type[BaseException]) -> BaseException:
    """What has ended a pipeline of psycopg, which leaves one whose connection was lost with an error of its own."""
    context = error.__context__
    return context if "cannot exit pipeline mode" in str(error) and isinstance(context, kind) else error


def _before_rollback(error: BaseException) -> BaseException:
    """What has made MySQL undo a whole transaction, mostly a deadlock. Its savepoints are gone, which hides that."""
    hidden = error.__context__
    if next(iter(error.args), None) == _NO_SAVEPOINT and isinstance(hidden, DBAPIError):
        return hidden.orig or error
    return error


def _unavailable(error: BaseException) -> StoreUnavailable:
    number, state = next(iter(error.args), None), getattr(error, "sqlstate", None)
    if number in CONFLICTS or state in CONFLICT_STATES:
        return StoreConflict(sentence(error))
    if number == _NO_SUCH_TABLE or state == _NO_SUCH_TABLE_STATE:
        return TableMissing(sentence(error))
    if denied(error):
        return NotPermitted(sentence(error))
    if took_too_long(error):
        return StoreTooSlow(sentence(error))
    return StoreUnavailable(sentence(error))


def blames_the_row(engine: Engine, error: Exception) -> bool:
    """Whether the error is caused by a row's contents, so that the same statement can succeed for other rows."""
    if isinstance(error, UnicodeError):
        return True
    driver = engine.dialect.loaded_dbapi
    if connection_lost(engine, error):
        return False
    if isinstance(error, driver.IntegrityError | driver.DataError):
        return True
    state = getattr(error, "sqlstate", "")
    number = next(iter(error.args), None)
    return (
        str(state).startswith(REFUSALS)
        # A row security policy. A missing privilege has the same SQLSTATE.
        or (state == "42501" and "row-level security" in str(error))
        or number in MYSQL_REFUSALS
    )


@contextmanager
def blaming_the_row() -> Iterator[None]:
    """Turns errors that will recur however often the row is written into ``InvalidItem``."""
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated or not _blames_the_row(error):
            raise
        raise InvalidItem(sentence(error.orig or error)) from error
    except (StatementError, UnicodeError) as error:
        # The driver cannot even send the value.
        raise InvalidItem(sentence(getattr(error, "orig", None) or error)) from error


def _blames_the_row(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError | DataError):
        return True
    state = getattr(error.orig, "sqlstate", "")
    if state is None:
        # The error is the driver's, not the server's: it cannot send such a value.
        return isinstance(error, ProgrammingError)
    number = next(iter(error.orig.args), None) if error.orig is not None else None
    return str(state).startswith(REFUSALS) or number in MYSQL_REFUSALS


def connection_lost(engine: Engine, error: Exception) -> bool:
    """Whether the error of the driver means that its connection, and with it probably the server, has gone.

    A server that takes no writes counts as gone: another one has its place by now, or will have.
    """
    if refuses_writes(error) or engine.dialect.is_disconnect(error, None, None):  # type: ignore[arg-type]
        return True
    # psycopg's dialect wants to look at the connection; the error tells too: by PostgreSQL's classes "connection
    # exception" and "operator intervention, shutdown", or by carrying no state, for it is not the server that speaks.
    state = getattr(error, "sqlstate", "")
    return isinstance(error, engine.dialect.loaded_dbapi.OperationalError) and (
        state is None or state.startswith(("08", "57P"))
    )


def sentence(error: BaseException) -> str:
    """The first line of what the driver says, or of what it says of each host, without the statement and the parameters; with
    what to do."""
    if len(error.args) > 1 and isinstance(error.args[0], int):
        return _sentence_of_mysql(error)
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    said = f"the database: {_of_all_hosts(str(error)) or first}"
    step = _NEXT_STEPS_BY_STATE.get(getattr(error, "sqlstate", None) or "")
    if step is None and "onnection refused" in said:
        step = _NO_SERVER
    if step is None and any(words in said for words in _SAY_NO_ROOM):
        step = _NO_ROOM
    if step is None and any(words in said for words in _SAY_NO_WRITES):
        step = _NO_WRITES
    return f"{said}; {step}" if step else said


def _of_all_hosts(words: str) -> str:
    """Empty if psycopg has tried a single one."""
    found = _OF_A_HOST.findall(words)
    return "; ".join(reason if "connection to server" in reason else f"{host}: {reason}" for host, reason in found)


def _sentence_of_mysql(error: BaseException) -> str:
    number, words = error.args[0], str(error.args[1]).strip()
    lines = words.splitlines()
    parts = [lines[0]] if lines else []
    if number in _NEXT_STEPS:
        parts.append(_NEXT_STEPS[number])
    said = "; ".join(parts) or type(error).__name__
    return f"the database: {said} ({number})" if number else f"the database: {said}"
