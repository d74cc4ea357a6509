"""Receivers on loopback, plain or over TLS, of which a test writes what they do with each connection."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Thread

from boxengine.errors import Unavailable
from tests.servers.certificates import Certificate

Serve = Callable[[socket.socket], None]
LARGE = b"x" * 8_000_000
"""More than fits into the buffers of a connection: the client still writes when the receiver has gone."""


@contextmanager
def raw_receiver(serve: Serve, *, host: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Listens, hands over one connection after the other, and then closes it."""
    with socket.create_server((host, port)) as listener:

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    serve(client)

        thread = Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            thread.join(30)
            assert not thread.is_alive()


def server(serve: Serve, *, host: str = "127.0.0.1", port: int = 0) -> AbstractContextManager[int]:
    """The same for clients that may break off."""

    def tolerant(client: socket.socket) -> None:
        client.settimeout(10)
        with suppress(OSError):
            serve(client)

    return raw_receiver(tolerant, host=host, port=port)


def over_tls(certificate: Certificate, serve: Serve) -> Serve:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)

    def secured(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as connection:
            serve(connection)

    return secured


def accept(connection: socket.socket) -> None:
    connection.recv(65_536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def outage(result: object) -> str:
    assert isinstance(result, Unavailable)
    return str(result)
