"""Sends wake-ups after the outermost commit of a transaction, and never after a rollback.

SQLAlchemy has no event for this: a connection's ``commit`` event comes before the driver commits, and a session's
``after_commit`` also fires when a savepoint is released, or when the session has joined a transaction that goes on. Every commit
of a ``Session``, a ``Connection`` or their asynchronous forms, two-phase ones included, ends in the public ``commit`` of the
connection's root transaction. So that object gets a class whose ``commit`` also sends the signals stored with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine import RootTransaction

from boxengine.adapters.announcer import Send
from boxengine.errors import Unavailable
from boxengine.ports import Signal

_Left = tuple[RootTransaction, dict[Send, dict[Signal, None]]]
"""A transaction and its signals. A rollback leaves them with the connection; the next transaction puts its own in their place."""
_LEFT = "_boxengine_after_commit"
"""The connection's attribute that holds them. To reach its ``info`` takes a tenth of what a wake-up may take from a writer."""


def send_after_commit(connection: Connection, signals: Iterable[Signal], send: Send) -> None:
    """Calls ``send`` with these signals once the connection's transaction has been committed.

    Signals of one transaction are sent together, each once. Rolling back a savepoint removes none of them: a needless signal
    costs one poll. ``Unavailable`` is ignored: the hint is lost, the caller's commit stands.
    """
    transaction = connection.get_transaction()
    left: _Left | None = connection.__dict__.get(_LEFT)
    if left is not None and left[0] is transaction:
        left[1].setdefault(send, {}).update(dict.fromkeys(signals))
        return
    told = dict.fromkeys(signals)
    if transaction is None or _commits_each_statement(connection):
        _send(send, told)
        return
    connection.__dict__[_LEFT] = (transaction, {send: told})
    transaction.__class__ = _telling(type(transaction))  # type: ignore[arg-type]  # mypy mistakes its __hash__


@cache
def _telling(transactions: type[RootTransaction]) -> type[RootTransaction]:
    """A subclass whose ``commit`` also sends the signals stored with the transaction."""

    class Telling(transactions):  # type: ignore[misc, valid-type]  # RootTransaction or its subclass for two phases
        __slots__ = ()

        def commit(self) -> None:
            left: _Left | None = self.connection.__dict__.pop(_LEFT, None)
            super().commit()
            if left is not None:
                for send, signals in left[1].items():
                    _send(send, signals)

    return Telling


def _send(send: Send, signals: dict[Signal, None]) -> None:
    try:  # noqa: SIM105 - suppress() would be a third of the work between a commit and the sending
        send([*signals])
    except Unavailable:
        pass


def _commits_each_statement(connection: Connection) -> bool:
    """Whether the connection is in autocommit mode, so that each statement is already committed."""
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    driver: Any = connection.connection.dbapi_connection
    autocommit = getattr(driver, "autocommit", False)
    if callable(autocommit):
        # In PyMySQL and mysqlclient it is a method that sets the mode.
        ask = getattr(driver, "get_autocommit", None)
        return bool(ask()) if callable(ask) else False
    return autocommit is True
