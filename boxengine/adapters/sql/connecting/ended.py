"""Drops idle connections that the server has ended: when it was restarted, by an administrator, after too long a silence.

Whoever is given one from the pool would fail, and tell people of an outage although the server is there. Something to read on an
idle connection is mostly the server's farewell. A look for it costs half a microsecond and no round trip. It cannot see
that a firewall has forgotten a connection without a word.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

_SENT = "boxengine_sent"
"""A function that tells whether the server has sent something on the connection."""
_MESSAGES = 4
"""How many a server may have sent before its farewell, such as settings that have changed."""


def drop_ended(engine: Engine) -> None:
    """Has the pool look at each connection that it gives away, and replace those that have ended, with all others in it."""
    way = _WAYS.get(engine.driver)
    if way is not None:
        file, read = way
        event.listen(engine, "connect", partial(_note_file, file))
        event.listen(engine, "checkout", partial(_drop_if_ended, engine, read))


def _note_file(file: Callable[[Any], int], connection: Any, record: Any) -> None:
    record.info[_SENT] = _watch(file(connection))


def _watch(file: int) -> Callable[[float], object]:
    if not hasattr(select, "poll"):  # on Windows, and where eventlet has taken it away
        return lambda seconds: select.select([file], [], [], seconds)[0]
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return poll.poll


def _drop_if_ended(engine: Engine, read: Callable[[Any], object], connection: Any, record: Any, _proxy: object) -> None:
    sent = record.info[_SENT]
    try:
        for _ in range(_MESSAGES):
            if not sent(0):
                break
            read(connection)
    except engine.dialect.loaded_dbapi.Error as error:
        engine.dispose()
        raise DisconnectionError from error


_WAYS: dict[str, tuple[Callable[[Any], int], Callable[[Any], object]]] = {
    "psycopg": (lambda connection: connection.fileno(), lambda connection: connection.pgconn.consume_input()),
    # PyMySQL has no other way to its file, and expects nothing from an idle connection.
    "pymysql": (lambda connection: connection._sock.fileno(), lambda connection: connection.ping(reconnect=False)),  # noqa: SLF001
}
"""By driver: what gives the number of a connection's file, and what reads from it, or fails."""
