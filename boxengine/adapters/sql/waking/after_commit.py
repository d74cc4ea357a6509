"""Sends wake-ups after the outermost commit of a transaction, and never after a rollback.

SQLAlchemy has no event for this: a connection's ``commit`` event comes before the driver commits, and a session's
``after_commit`` also fires when a savepoint is released, or when the session has joined a transaction that goes on. Every commit
of a ``Session``, a ``Connection`` or their asynchronous forms, two-phase ones included, ends in the public ``commit`` of the
connection's root transaction. So that object gets a class whose ``commit`` also sends the signals stored with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.engine import RootTransaction

from boxengine.errors import Unavailable
from boxengine.ports import Signal

Send = Callable[[list[Signal]], None]
_LEFT = "boxengine.after_commit"
"""The key in a connection's ``info`` under which its transaction's signals wait."""


class _Left(NamedTuple):
    transaction: RootTransaction
    """The signals' transaction. A rollback leaves its signals here, and the next transaction must not send them."""
    signals: dict[Send, dict[Signal, None]]


def send_after_commit(connection: Connection, signals: Iterable[Signal], send: Send) -> None:
    """Calls ``send`` with these signals once the connection's transaction has been committed.

    Signals of one transaction are sent together, each once. Rolling back a savepoint removes none of them: a needless signal
    costs one poll. ``Unavailable`` is ignored: the hint is lost, the caller's commit stands.
    """
    transaction = connection.get_transaction()
    if transaction is None or _commits_each_statement(connection):
        _send(send, list(dict.fromkeys(signals)))
        return
    left = connection.info.get(_LEFT)
    if left is None or left.transaction is not transaction:
        left = connection.info[_LEFT] = _Left(transaction, {})
        transaction.__class__ = _telling(type(transaction))  # type: ignore[arg-type]  # mypy mistakes its __hash__
    left.signals.setdefault(send, {}).update(dict.fromkeys(signals))


@cache
def _telling(transactions: type[RootTransaction]) -> type[RootTransaction]:
    """A subclass whose ``commit`` also sends the signals stored with the transaction."""

    class Telling(transactions):  # type: ignore[misc, valid-type]  # RootTransaction or its subclass for two phases
        __slots__ = ()

        def commit(self) -> None:
            left = self.connection.info.pop(_LEFT, None)
            super().commit()
            if left is not None and left.transaction is self:
                for send, signals in left.signals.items():
                    _send(send, list(signals))

    return Telling


def _send(send: Send, signals: list[Signal]) -> None:
    with suppress(Unavailable):
        send(signals)


def _commits_each_statement(connection: Connection) -> bool:
    """Whether the connection is in autocommit mode, so that each statement is already committed."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    driver: Any = connection.connection.dbapi_connection
    # In PyMySQL and mysqlclient ``autocommit`` is a method that sets the mode.
    ask = getattr(driver, "get_autocommit", None)
    return bool(ask()) if callable(ask) else getattr(driver, "autocommit", False) is True
