"""Transactions that an error has ended while the handler goes on: whatever it writes from then on is not kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

from sqlalchemy import Connection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import PendingRollbackError, SQLAlchemyError

from boxengine.errors import BoxError

ADVICE = (
    "the session: an earlier statement of the handler failed, and its transaction with it, so that nothing can be written any "
    "more; let the error pass, or put a statement that may fail into a savepoint: with session.begin_nested(): ... (async with "
    "in an async handler)"
)
_IN_FAILED_TRANSACTION = "25P02"
"""PostgreSQL refuses every statement after one that failed."""
_DEADLOCK = 1213
"""MySQL and MariaDB have undone the whole transaction; the next statement begins a new one without a word."""
_NO_SAVEPOINT, _NO_SAVEPOINT_STATE = 1305, "3B001"
"""A savepoint does not exist. Of SQLAlchemy's, because a handler's COMMIT, or DDL in MariaDB, has ended the transaction."""
_CONFLICTS = frozenset({"40001", "40P01"})
"""PostgreSQL's states of a serialization failure and of a deadlock. A savepoint gets its transaction out of either."""
_SAVEPOINTS = "sa_savepoint_"
"""How SQLAlchemy's begin."""
_SESSION = "boxengine_session"
_IN_ERROR, _UNKNOWN = 3, 4
"""libpq's status of a transaction that refuses every statement, and of a connection that is lost."""


class HandlersTransaction(Protocol):
    """What is known of the errors in a handler's transaction."""

    failure: BaseException | None
    """The latest error of a statement in this transaction that is not a consequence of an earlier one."""
    undone: bool
    """Whether the server has undone the transaction, and would go on with another one."""


def note_errors(connection: Connection, transaction: HandlersTransaction) -> None:
    """Notes errors of this connection from now on, until the pool gets the connection back."""
    if not event.contains(connection.engine, "handle_error", _note):
        event.listen(connection.engine, "handle_error", _note)
    connection.execution_options(**{_SESSION: transaction})


def is_aborted(connection: Connection) -> bool:
    """Whether PostgreSQL refuses every statement of the connection's transaction. Asks only the driver."""
    return _status(connection.connection.driver_connection) == _IN_ERROR


def conflict(connection: Connection, transaction: HandlersTransaction, error: BaseException) -> BaseException | None:
    """The driver's error if another transaction was in the way of the handler, and not something in its item.

    Args:
        error: what came out of the handler.
    """
    failure = transaction.failure
    met = getattr(failure, "orig", None)
    if failure is None or getattr(met, "sqlstate", None) not in _CONFLICTS:
        return None
    # A handler may have got over it, in a savepoint of its own, and have failed of something else.
    return met if is_aborted(connection) or failure in _causes(error) else None


def undid_everything(error: BaseException) -> bool:
    """Whether the driver's error says that the server has undone the whole transaction because of another one."""
    return next(iter(error.args), None) == _DEADLOCK


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen = set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def is_lost(connection: Connection, transaction: HandlersTransaction) -> bool:
    """Whether nothing written in the transaction can be committed, whatever its handlers do now. Asks only the driver."""
    if transaction.undone or connection.closed or connection.invalidated:
        return True
    driver = connection.connection.driver_connection
    return _status(driver) == _UNKNOWN or not getattr(driver, "open", True)


def _status(driver: object) -> object:
    return getattr(getattr(driver, "info", None), "transaction_status", None)


@contextmanager
def demanding_transaction(session: HandlersTransaction) -> Iterator[None]:
    """Writes of ours through a handler's session.

    Raises:
        BoxError: the transaction was ended by an error that the handler has caught.
    """
    if session.undone:
        raise BoxError(ADVICE) from session.failure
    try:
        yield
    except SQLAlchemyError as error:
        if not _is_consequence(error) or getattr(session.failure, "connection_invalidated", False):
            raise
        raise BoxError(ADVICE) from (session.failure or error)


def _note(context: ExceptionContext) -> None:
    options: Any = {} if context.connection is None else context.connection.get_execution_options()
    session = cast("HandlersTransaction | None", options.get(_SESSION))
    error = context.sqlalchemy_exception
    if session is None or error is None:
        return
    if _is_consequence(error):
        error.add_note(ADVICE)
        if session.failure is not None:
            error.add_note(f"the statement that failed first: {session.failure}")
    else:
        session.failure = error
        session.undone = session.undone or _is_undone(context)


def _is_undone(context: ExceptionContext) -> bool:
    """Whether the transaction is another one than before: the server has undone it, or the handler has ended it in SQL."""
    original = context.original_exception
    if undid_everything(original):
        return True
    number = next(iter(original.args), None)
    no_savepoint = number == _NO_SAVEPOINT or getattr(original, "sqlstate", None) == _NO_SAVEPOINT_STATE
    return no_savepoint and _SAVEPOINTS in (context.statement or "")


def _is_consequence(error: BaseException) -> bool:
    return isinstance(error, PendingRollbackError) or (
        getattr(getattr(error, "orig", None), "sqlstate", None) == _IN_FAILED_TRANSACTION
    )
