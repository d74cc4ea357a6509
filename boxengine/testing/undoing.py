"""What is kept in memory goes with the transaction of a database in which it was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, NestedTransaction, event
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from boxengine.testing.sessions import CreatingSession, is_mock


def on_rollback(session: Any, undo: Callable[[], None]) -> None:
    """Calls back when the transaction or savepoint now open in a session, or one around it, ends without a commit."""
    if is_mock(session):
        return
    if isinstance(session, scoped_session):
        session = session()
    match session:
        case Session():
            _watch_session(session, undo)
        case Connection():
            _watch_connection(session, undo)
        case CreatingSession():
            session.undo.append(undo)
        case _:
            pass  # None, or the test's own fake


def _watch_session(session: Session, undo: Callable[[], None]) -> None:
    if not session.in_transaction():
        session.begin()  # as the INSERT would have done
    uncommitted = set(_enclosing(_innermost(session)))

    def committed(current: Session) -> None:
        uncommitted.discard(_innermost(current))

    def ended(_session: Session, transaction: SessionTransaction) -> None:
        if transaction in uncommitted:
            undo()

    event.listen(session, "after_commit", committed)
    event.listen(session, "after_transaction_end", ended)  # a session that is only closed tells of no rollback
    joined = _joined(session)
    if joined is not None:
        _watch_connection(joined, undo)


def _watch_connection(connection: Connection, undo: Callable[[], None]) -> None:
    if not connection.in_transaction():
        connection.begin()  # as the INSERT would have done
    whole, savepoints = connection.get_transaction(), set(_savepoints(connection))

    def rolled_back(current: Connection) -> None:
        if current.get_transaction() is whole:
            undo()

    def to_savepoint(current: Connection, _name: str, _context: None) -> None:
        if current.get_nested_transaction() in savepoints:
            undo()

    event.listen(connection, "rollback", rolled_back)
    event.listen(connection, "rollback_savepoint", to_savepoint)


def _joined(session: Session) -> Connection | None:
    """The connection in whose transaction the session takes part, so that a commit of the session is not the last word."""
    with suppress(UnboundExecutionError):
        bind = session.get_bind()
        if isinstance(bind, Connection) and bind.in_transaction():
            return bind
    return None


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _enclosing(transaction: SessionTransaction | None) -> Iterator[SessionTransaction]:
    """The transaction and all around it that end with a commit; those of a flush do not."""
    while transaction is not None:
        if transaction.nested or transaction.parent is None:
            yield transaction
        transaction = transaction.parent


def _savepoints(connection: Connection) -> Iterator[NestedTransaction]:
    """The innermost savepoint and all around it: one that is released leaves its rows to the next."""
    savepoint = connection.get_nested_transaction()
    while savepoint is not None:
        yield savepoint
        savepoint = savepoint._previous_nested  # noqa: SLF001 - SQLAlchemy tells it nowhere else
