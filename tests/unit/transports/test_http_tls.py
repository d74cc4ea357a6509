"""The transport ``http`` over TLS: whether a connection failed before or after something was sent."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.http.transport import HttpTransport
from boxengine.errors import BoxError
from tests.servers.certificates import Certificate, certify
from tests.unit.transports.items import make_item
from tests.unit.transports.tls_receiver import LARGE, Serve, accept, outage, over_tls, server

ADDRESSES = ("127.0.0.1", "127.0.0.2")
"""Of hooks.example."""


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certify(tmp_path_factory.mktemp("tls") / "trusted", names="DNS:hooks.example,IP:127.0.0.1")


@pytest.fixture
def make(trusted: Certificate) -> Iterator[Callable[..., HttpTransport]]:
    made: list[HttpTransport] = []

    def make(port: int, *, host: str = "127.0.0.1", **arguments: Any) -> HttpTransport:
        settings: dict[str, Any] = {"allow_private": True, "ca_file": str(trusted.authority), "timeout": 10}
        made.append(HttpTransport(url=f"https://{host}:{port}/", serializer="bytes", **settings | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def two_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(host: str, port: int, *_args: Any, **_kwargs: Any) -> list[Any]:
        found = ADDRESSES if host in {"hooks.example", "hooks.example."} else (host,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def reset(connection: socket.socket) -> None:
    connection.recv(65_536)  # Python leaves a socket open that is reset before its handshake has begun
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def speak_plainly(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.recv(65_536)


def test_a_handshake_that_takes_too_long_costs_no_attempt(make: Callable[..., HttpTransport]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        said = outage(make(port, timeout=0.2)(make_item(), b""))
    assert said.startswith(f"http: nothing was sent to 127.0.0.1: no connection to port {port}: TLS: ")
    assert "timed out" in said


@pytest.mark.parametrize("serve", [reset, speak_plainly])
def test_a_handshake_that_fails_costs_no_attempt_however_often(
    make: Callable[..., HttpTransport], serve: Serve
) -> None:
    with server(serve) as port:
        transport = make(port)
        for _ in range(4):
            assert "nothing was sent" in outage(transport(make_item(), b""))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        ("", "it holds no certificate"),
        ("key", "it holds no certificate"),
        ("-----BEGIN CERTIFICATE-----\nMIIB", "a certificate in it is cut off or damaged"),
    ],
)
def test_a_file_without_certificates_is_refused_when_the_transport_is_made(
    make: Callable[..., HttpTransport], tmp_path: Path, content: str | None, reason: str
) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BoxError, match=f"ca_file '{file}' cannot be used: {reason}"):
        make(1, ca_file=str(file))


def test_a_certificate_that_is_not_trusted_costs_no_attempt(make: Callable[..., HttpTransport], tmp_path: Path) -> None:
    with server(over_tls(certify(tmp_path / "stranger"), accept)) as port:
        assert "CERTIFICATE_VERIFY_FAILED" in outage(make(port)(make_item(), b""))


def test_a_certificate_for_another_name_costs_no_attempt(
    make: Callable[..., HttpTransport], trusted: Certificate
) -> None:
    with server(over_tls(trusted, accept)) as port:
        assert "Hostname mismatch, certificate is not valid for 'localhost'" in outage(
            make(port, host="localhost")(make_item(), b"")
        )
        assert make(port)(make_item(), b"") is None


def test_a_dot_at_the_end_of_the_name_is_no_part_of_the_certificates_name(
    make: Callable[..., HttpTransport], trusted: Certificate, two_addresses: None
) -> None:
    """With it, no resolver adds a search domain, which is usual in Kubernetes."""
    with server(over_tls(trusted, accept)) as port:
        assert make(port, host="hooks.example.")(make_item(), b"") is None


def test_a_receiver_that_wants_a_certificate_of_ours_costs_no_attempt(
    make: Callable[..., HttpTransport], trusted: Certificate
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted.certificate, trusted.key)
    context.verify_mode = ssl.CERT_REQUIRED

    def refuse(client: socket.socket) -> None:
        with suppress(ssl.SSLError):
            context.wrap_socket(client.dup(), server_side=True)
        client.recv(65_536)  # open until the client has read why

    with server(refuse) as port:
        said = outage(make(port)(make_item(), b""))
    assert said.startswith(f"http: nothing was sent to 127.0.0.1: no connection to port {port}: TLS: ")
    assert "CERTIFICATE_REQUIRED" in said


@pytest.mark.usefixtures("two_addresses")
def test_the_next_address_is_tried_if_tls_takes_too_long_at_the_first(
    make: Callable[..., HttpTransport], trusted: Certificate
) -> None:
    with socket.create_server((ADDRESSES[0], 0)) as silent:
        port = silent.getsockname()[1]
        with server(over_tls(trusted, accept), host=ADDRESSES[1], port=port):
            assert make(port, host="hooks.example", timeout=1)(make_item(), b"") is None


@pytest.mark.usefixtures("two_addresses")
def test_an_address_without_a_connection_is_tried_again_only_after_the_others(
    make: Callable[..., HttpTransport], trusted: Certificate
) -> None:
    tried: list[socket.socket] = []
    with server(tried.append, host=ADDRESSES[0]) as port:
        transport = make(port, host="hooks.example")
        with server(over_tls(trusted, accept), host=ADDRESSES[1], port=port):
            assert [transport(make_item(number), b"") for number in range(3)] == [None] * 3
            assert len(tried) == 1
        outage(transport(make_item(), b""))
        assert len(tried) == 2


@pytest.mark.usefixtures("two_addresses")
def test_a_receiver_that_closes_in_the_middle_of_a_body_may_have_the_item(
    make: Callable[..., HttpTransport], trusted: Certificate
) -> None:
    requests: list[bytes] = []

    def close_early(connection: socket.socket) -> None:
        requests.append(connection.recv(100))

    serve = over_tls(trusted, close_early)
    with server(serve, host=ADDRESSES[0]) as port, server(serve, host=ADDRESSES[1], port=port):
        transport = make(port, host="hooks.example")
        for _ in range(2):
            said = outage(transport(make_item(), LARGE))
            assert "whether it got the request is unknown" in said
    assert len(requests) == 2, "it is not sent to another address once some of it was sent"
