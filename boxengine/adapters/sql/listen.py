"""Wake-ups through PostgreSQL's LISTEN and NOTIFY: the database itself tells of commits, and of nothing else.

The listener needs a connection of its own that stays with one server process; through PgBouncer in transaction mode it
hears nothing, and the poller's own checks take over.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
from sqlalchemy import Engine

from boxengine.errors import StoreUnavailable
from boxengine.ports import Signal

CHANNEL = "boxengine"


class PostgresWakeups:
    """``Wakeups`` of one database. ``wait`` belongs to one thread."""

    def __init__(self, engine: Engine) -> None:
        """Connects at the first ``wait``."""
        arguments, options = engine.dialect.create_connect_args(engine.url)
        self._connect_args: tuple[Any, ...] = tuple(arguments)
        # A listener only ever reads: a silent network must not leave it waiting on a dead connection.
        self._options = {**options, "keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3}
        self._connection: psycopg.Connection[Any] | None = None
        self._closed = False
        self.reliable = False

    def wait(self, timeout: timedelta) -> list[Signal]:
        if self._closed:
            return []
        try:
            connection = self._connected()
            arrived = [*connection.notifies(timeout=timeout.total_seconds(), stop_after=1)]
            if arrived:
                # What came in the same breath is answered with one poll.
                arrived += connection.notifies(timeout=0)
        except psycopg.Error as error:
            self._disconnect()
            raise StoreUnavailable(
                f"the database's notifications: {str(error).strip() or type(error).__name__}"
            ) from error
        return [_signal(notice.payload) for notice in arrived]

    def close(self) -> None:
        self._closed = True
        self._disconnect()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = psycopg.connect(*self._connect_args, **self._options, autocommit=True)
            connection.execute(f"LISTEN {CHANNEL}")
            self._connection = connection
            self.reliable = True
        return self._connection

    def _disconnect(self) -> None:
        self.reliable = False
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _signal(payload: str) -> Signal:
    """``box`` or ``box:bucket``; whatever anybody else sends on the channel names no box and is ignored."""
    box_name, colon, bucket = payload.rpartition(":")
    if colon and bucket.isdecimal():
        return Signal(box_name, int(bucket))
    return Signal(payload, None)
