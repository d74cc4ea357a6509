"""Wake-ups through PostgreSQL's LISTEN and NOTIFY: the database itself announces commits, and only commits.

The listener needs a connection of its own that stays with one server process; behind a connection pooler that pools by
transaction it would hear nothing. If it finds a pooler, it reports that and stops listening; the poller's own checks
take over.
"""

from __future__ import annotations

import selectors
import socket
from datetime import timedelta
from typing import Any

import psycopg
from sqlalchemy import Engine, event

from boxengine.adapters.sql.connecting import own_settings
from boxengine.adapters.sql.connecting.engine import CONNECT_TIMEOUT, address_of
from boxengine.adapters.sql.connecting.errors import sentence
from boxengine.adapters.sql.connecting.login import login_options
from boxengine.adapters.sql.connecting.pooler import is_pooled
from boxengine.adapters.sql.connecting.writes import connect_arguments
from boxengine.errors import StoreUnavailable
from boxengine.ports import Signal
from boxengine.ports.credentials import Ask

CHANNEL = "boxengine"
SILENCE = timedelta(minutes=2)
"""After so much of it the listener connects anew. It only waits, so nothing tells it that a proxy has kept open its connection to
a server that has gone, or that writers are led to another server by now."""
_POOLED = (
    "database.url leads through a connection pooler, behind which LISTEN may hear nothing: set database.listen_url to the "
    "server itself (or, where the pooler pools by session, to the same address), or wakeup: redis; until then the poller "
    "looks by itself"
)


class PostgresWakeups:
    """``Wakeups`` of one database. ``wait`` and ``close`` belong to one thread, ``interrupt`` to any."""

    def __init__(self, engine: Engine, *, listen_url: str | None = None, password: Ask | None = None) -> None:
        """Connects at the first ``wait``.

        Args:
            engine: of the database.
            listen_url: another address of the same database, known to lead to a single server process.
            password: as in ``connect``.
        """
        self._may_be_pooled = listen_url is None
        address = engine.url if listen_url is None else address_of(listen_url)
        arguments, options = engine.dialect.create_connect_args(address)
        self._connect_args: tuple[Any, ...] = tuple(arguments)
        # A listener only reads, so without keepalives a dead network would leave it waiting for ever.
        self._options = {
            "connect_timeout": CONNECT_TIMEOUT,
            # A standby sends no notifications, and refuses LISTEN.
            **connect_arguments(address),
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            **options,
        }
        self._password = password
        self._connection: psycopg.Connection[Any] | None = None
        self._either: selectors.BaseSelector | None = None
        """Waits for that connection and for the bell."""
        self._bell: tuple[socket.socket, socket.socket] | None = None
        """A byte sent into the first comes out of the second."""
        self._interrupted = False
        self._silent = timedelta(0)
        """For how long the connection has heard nothing."""
        self._in_doubt = False
        """Whether other connections to the database were lost since this one was made."""
        self.reliable = False
        self.beginnings = 0
        event.listen(engine, "engine_disposed", self._doubt)

    def wait(self, timeout: timedelta) -> list[Signal]:
        if self._interrupted:
            return []
        if self._in_doubt:
            self._disconnect()
        try:
            if self._connection is None:
                self._connect()
                return []
            connection = self._connection
            # Some may have come with the answer to another statement.
            arrived = [*connection.notifies(timeout=0)]
            if not arrived and self._something_comes(timeout):
                arrived = [*connection.notifies(timeout=0)]
            self._silent = timedelta(0) if arrived else self._silent + timeout
            if self._silent >= SILENCE:
                self._disconnect()  # the next call connects anew
        except psycopg.Error as error:
            self._disconnect()
            reason = sentence(error).removeprefix("the database: ")
            raise StoreUnavailable(f"the database's notifications: {reason}") from error
        return [signal for notice in arrived for signal in Signal.decode(notice.payload)]

    def interrupt(self) -> None:
        self._interrupted = True
        if self._bell is not None:
            self._bell[0].send(b"!")

    def close(self) -> None:
        self._interrupted = True
        self._disconnect()
        bell, self._bell = self._bell, None
        for end in bell or ():
            end.close()

    def _doubt(self, _engine: Engine) -> None:
        self._in_doubt = True

    def _something_comes(self, timeout: timedelta) -> bool:
        """Waits for the server, not longer than this; False if it stays silent, or the wait is interrupted."""
        # Whoever has interrupted before there was a bell has not rung it.
        if self._either is None or self._interrupted:
            return False
        return bool(self._either.select(timeout.total_seconds())) and not self._interrupted

    def _connect(self) -> None:
        self._in_doubt = False
        # Stored at once, so that ``_disconnect`` closes it whatever fails from here on.
        login = {} if self._password is None else login_options(self._password)
        self._connection = psycopg.connect(*self._connect_args, **self._options | login, autocommit=True)
        if self._may_be_pooled and is_pooled(self._connection):
            self._disconnect()
            raise StoreUnavailable(_POOLED)
        own_settings.set_on(self._connection)
        self._connection.execute(f"LISTEN {CHANNEL}")
        self._bell = self._bell or socket.socketpair()
        self._either = selectors.DefaultSelector()
        self._either.register(self._connection.fileno(), selectors.EVENT_READ)
        self._either.register(self._bell[1], selectors.EVENT_READ)
        self.reliable = True
        self.beginnings += 1

    def _disconnect(self) -> None:
        self.reliable, self._silent = False, timedelta(0)
        either, self._either = self._either, None
        if either is not None:
            either.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
