"""TLS in front of a server without it: the wheels' PostgreSQL and Valkey are built without TLS."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.servers.certificates import Certificate

_ENCRYPTION_REQUESTS = {80877103: b"S", 80877104: b"N"}  # SSLRequest: yes; GSSENCRequest: no
_REQUEST = struct.Struct("!ii")
_CHUNK = 65_536


class TlsTerminator:
    """Ends TLS as a load balancer does: decrypts connections and forwards them to a server on loopback.

    As a context manager it listens on entry and closes everything on exit.
    """

    def __init__(self, host: str, port: int, *, certificate: Certificate, postgres: bool = False) -> None:
        """
        Args:
            postgres: clients first ask for TLS in PostgreSQL's own protocol.
        """
        self._target = (host, port)
        self._postgres = postgres
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate.certificate, certificate.key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept, name="tls terminator", daemon=True)]

    @property
    def port(self) -> int:
        """The port on which it listens on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which close alone does not
        self._threads[0].join(timeout=10)
        self._listener.close()
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=10)
            assert not thread.is_alive(), "a connection of the TLS terminator did not end"

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(client)
            thread = threading.Thread(target=self._serve, args=(client,), name="tls connection", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        # A client that distrusts the certificate ends the handshake, as it should.
        with suppress(OSError), client:
            if not self._postgres or _tls_is_wanted(client):
                with self._context.wrap_socket(client, server_side=True) as secured:
                    with self._lock:
                        self._open.add(secured)
                    with socket.create_connection(self._target) as server:
                        _forward(secured, server)


def _tls_is_wanted(client: socket.socket) -> bool:
    """Whether PostgreSQL's client, in its first message, asks for TLS; one that does not ask is refused."""
    while len(request := client.recv(_REQUEST.size)) == _REQUEST.size:
        answer = _ENCRYPTION_REQUESTS.get(_REQUEST.unpack(request)[1])
        if answer is None:
            return False
        client.sendall(answer)
        if answer == b"S":
            return True
    return False


def _forward(client: ssl.SSLSocket, server: socket.socket) -> None:
    """Forwards both ways until either side ends, in one thread: a TLS connection must not be read and written at once."""
    other: dict[socket.socket, socket.socket] = {client: server, server: client}
    while True:
        readable = [client] if client.pending() else select.select([client, server], [], [])[0]
        for source in readable:
            data = source.recv(_CHUNK)
            if not data:
                return
            other[source].sendall(data)
