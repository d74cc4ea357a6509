"""Calls scripts with as little of redis-py as can be, because an item that has just been written waits for such a call.

For one command redis-py runs some two hundred functions of its own. After a pause none of them is in the processor's cache any
more, and then they take longer than the server and the way to it.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis
from redis.exceptions import NoScriptError, ResponseError

from boxengine.adapters.redis.connection import Arguments, takes_no_writes

_FRESH = 1.0
"""Seconds. A connection that was used no longer ago is taken to be open still."""
_KEPT = 2
"""Connections that a client's scripts keep for the next call. The listener makes one call at a time, and a thread another."""


@dataclass(slots=True)
class _Line:
    """A connection out of the pool."""

    client: redis.Redis
    """Returns it to the pool when it is closed."""
    connection: Any
    used: float = 0.0
    """Monotonic time at which the last call ended."""

    def is_stale(self) -> bool:
        """Whether the server has closed it, or has said something that nobody has asked for."""
        try:
            return bool(self.connection.can_read())
        except (redis.RedisError, OSError):
            return True

    def drop(self) -> None:
        """Closes the connection. The pool connects it anew for its next user, behind Sentinels to the master of that time."""
        self.connection.disconnect()
        self.client.close()


class Scripts:
    """The scripts of one client. Serves all threads."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._free: deque[_Line] = deque()

    def register(self, text: str) -> Script:
        """Makes a script callable; the server learns of it at the first call."""
        return Script(self, text)

    def take(self) -> _Line:
        """A connection that nobody else uses. Give it back with ``put``, or ``drop`` it if its call failed."""
        try:
            line = self._free.pop()
        except IndexError:
            return self._connected()
        if time.monotonic() - line.used > _FRESH and line.is_stale():
            line.drop()
            return self._connected()
        return line

    def put(self, line: _Line) -> None:
        """The call has its answer."""
        if len(self._free) < _KEPT:
            line.used = time.monotonic()
            self._free.append(line)
        else:
            line.client.close()

    def drop_free(self) -> None:
        """Closes the connections that nobody uses at the moment."""
        with suppress(IndexError):
            while True:
                self._free.pop().drop()

    def _connected(self) -> _Line:
        client = self._client.client()  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
        return _Line(client, client.connection)


class Script:
    """One script. Errors are redis-py's."""

    def __init__(self, scripts: Scripts, text: str) -> None:
        self._scripts = scripts
        self._text = text
        # It is how Redis names scripts, and protects nothing.
        self._sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, *, keys: Sequence[str | bytes] = (), args: Sequence[str | int | float | bytes] = ()) -> Any:
        """The script's answer."""
        line = self._scripts.take()
        try:
            command = ["EVALSHA", self._sha, len(keys), *keys, *args]
            try:
                answer = _answer(line.connection, command)
            except NoScriptError:
                _answer(line.connection, ["SCRIPT", "LOAD", self._text])
                answer = _answer(line.connection, command)
        except ResponseError as error:
            if takes_no_writes(error):
                line.drop()
                self._scripts.drop_free()
            else:
                self._scripts.put(line)
            raise
        except BaseException:
            # The rest of this answer would be taken for that of the next call. Not every connection of redis-py closes by itself.
            line.drop()
            raise
        self._scripts.put(line)
        return answer


def _answer(connection: Any, command: Arguments) -> Any:
    connection.send_packed_command((_packed(command),))
    return connection.read_response()


def _packed(command: Arguments) -> bytes:
    """As the protocol has it: how many parts there are, and each with its length."""
    parts = [b"*%d\r\n" % len(command)]
    for part in command:
        text = part if isinstance(part, bytes) else str(part).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)
