"""The proxy fails as networks fail, and heals."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.servers.proxy import FaultProxy


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def echo(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(100):
                    connection.sendall(data)
            except OSError:
                return

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=echo, args=(connection,)))
            threads[-1].start()

    accepting = threading.Thread(target=serve)
    accepting.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in (accepting, *threads):
        thread.join()


@pytest.fixture
def proxy(echo_port: int) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", echo_port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
        yield client


def test_a_stalled_connection_stays_open_and_gives_nothing_until_it_heals(
    proxy: FaultProxy, client: socket.socket
) -> None:
    proxy.stall()
    client.sendall(b"held")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(100)
    client.settimeout(10)
    proxy.heal()
    assert client.recv(100) == b"held"


def test_a_cut_resets_what_is_open_and_what_comes(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        client.recv(100)
    address = ("127.0.0.1", proxy.port)
    with pytest.raises(ConnectionResetError), socket.create_connection(address, timeout=10) as late:
        late.recv(100)


def test_after_healing_a_new_connection_works(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.cut()
    proxy.heal()
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as late:
        late.sendall(b"again")
        assert late.recv(100) == b"again"


def test_after_a_redirection_old_connections_are_reset_and_new_ones_reach_the_other_server(
    proxy: FaultProxy, client: socket.socket
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(10)
        proxy.redirect(f"redis://127.0.0.1:{other.getsockname()[1]}/0")
        with pytest.raises(ConnectionResetError):
            client.recv(100)
        with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as late:
            served, _ = other.accept()
            with served:
                served.sendall(b"the other one")
                assert late.recv(100) == b"the other one"


def test_a_slow_connection_delivers_late(proxy: FaultProxy, client: socket.socket) -> None:
    proxy.slow(timedelta(seconds=0.3))
    client.sendall(b"slow")
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(100)
    client.settimeout(10)
    assert client.recv(100) == b"slow"


def test_a_connection_that_the_client_ends_is_ended_for_both(proxy: FaultProxy, client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)
    assert client.recv(100) == b""


def test_a_url_is_led_through_the_proxy(proxy: FaultProxy) -> None:
    assert proxy.url("redis://10.1.2.3:6379/4") == f"redis://127.0.0.1:{proxy.port}/4"
    assert proxy.url("postgresql+psycopg://u:p@h:1/db") == f"postgresql+psycopg://u:p@127.0.0.1:{proxy.port}/db"
