"""The head of an answer, its status and headers, within one limit of time.

A socket's timeout limits each wait for data. A receiver that sends a byte now and then could keep a request for as long as it
likes, and with it the thread and the items that wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPResponse, parse_headers
from io import BufferedReader, RawIOBase
from socket import socket
from typing import Any


class HeadInTime(HTTPResponse):
    """An answer whose head, with any interim answers before it, must be there within the connection's timeout."""

    def __init__(self, sock: socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._source = _Source(sock, self.fp.detach())
        self.fp = BufferedReader(self._source)

    def begin(self) -> None:
        with self._source.within_the_timeout():
            super().begin()

    def _read_status(self) -> tuple[str, int, str]:
        """Of the final answer (RFC 9110, 15.2), or 101, after which no other comes. Python passes over none but 100."""
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc] # typeshed leaves it out
            if not HTTPStatus.SWITCHING_PROTOCOLS < status < HTTPStatus.OK:
                return version, status, reason
            parse_headers(self.fp)


class _Source(RawIOBase):
    """Reads from a connection."""

    def __init__(self, sock: socket, raw: RawIOBase) -> None:
        super().__init__()
        self._sock = sock
        self._raw = raw
        self._until: float | None = None

    @contextmanager
    def within_the_timeout(self) -> Iterator[None]:
        """All reads together take no longer than the socket's timeout.

        Raises:
            TimeoutError: they would.
        """
        timeout = self._sock.gettimeout()
        if timeout is not None:
            self._until = time.monotonic() + timeout
        yield
        self._until = None
        self._sock.settimeout(timeout)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._until is not None:
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        super().close()
        self._raw.close()
