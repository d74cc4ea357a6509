"""NOTIFY, in the application's transaction or after its commit.

PostgreSQL lets one notifying transaction commit at a time, its wait for the disk included, so those of many processes would
commit one after the other. An advisory lock tells a transaction that it would have to wait: whoever has the lock notifies. The
others leave that to somebody who notifies after their commits, and wait for nothing.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, String, bindparam, case, func, literal_column, select

from boxengine.adapters.announcer import Send
from boxengine.adapters.sql.waking.after_commit import send_after_commit
from boxengine.adapters.sql.waking.listen import CHANNEL
from boxengine.ports import Signal

TURN = f"{zlib.crc32(b'boxengine')}, -2"
"""The advisory lock's two numbers. The second one is no bucket's; locks of one number belong to applications."""


class Way(NamedTuple):
    """How the wake-up of one transaction is sent."""

    tell: Send | None
    """Notifies after the commit; None: nobody can, so the transaction does, and may have to wait."""
    in_transaction: bool
    """Whether the transaction notifies if it is its turn."""


IN_TRANSACTION = Way(None, in_transaction=True)


def notify_in_turn(text: ColumnElement[str]) -> ColumnElement[bool]:
    """Notifies if the transaction commits, unless it is another's turn; whether it does."""
    turn = func.pg_try_advisory_xact_lock(literal_column(TURN))
    return case((turn, func.pg_notify(literal_column(f"'{CHANNEL}'", String), text))).is_not(None)


_IN_TURN = select(notify_in_turn(bindparam("text", type_=String)))
IN_TURN = f"SELECT CASE WHEN pg_try_advisory_xact_lock({TURN}) THEN pg_notify('{CHANNEL}', %s) END IS NOT NULL"
"""The same for code without SQLAlchemy, with the text as its parameter."""


def wake(connection: Connection, signals: list[Signal], way: Way) -> None:
    """Has these signals sent once the connection's transaction has been committed."""
    if way.in_transaction:
        texts = Signal.encode_all(signals)
        if all(connection.execute(_IN_TURN, {"text": text}).scalar_one() for text in texts):
            return
    wake_out_of_turn(connection, signals, way)


def wake_out_of_turn(connection: Connection, signals: list[Signal], way: Way) -> None:
    """The same for a transaction that does not notify now, or has learned that it is another's turn."""
    if way.tell is not None:
        send_after_commit(connection, signals, way.tell)
        return
    for text in Signal.encode_all(signals):
        connection.execute(select(func.pg_notify(CHANNEL, text)))
