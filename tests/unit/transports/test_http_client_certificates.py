"""Certificates that the transport ``http`` shows to its receiver (mutual TLS), and the files that they come from."""

from __future__ import annotations

import fcntl
import logging
import shutil
import socket
import ssl
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from boxengine.adapters.http.checkup import CertificateCheckup
from boxengine.adapters.http.client_certificate import ClientCertificate, Validity, validity_of
from boxengine.adapters.http.transport import HttpTransport
from boxengine.domain.outcome import Failure
from boxengine.engine.delivering.calls.pipeline import TransportSpec
from boxengine.engine.delivering.calls.transports import Carrier
from boxengine.errors import BoxError, Unavailable
from boxengine.ports.people.checkup import Remark
from tests.eventually import eventually
from tests.servers.certificates import Certificate, certify
from tests.unit.transports.items import make_item
from tests.unit.transports.tls_receiver import LARGE, Serve, accept, outage, over_tls, server

Make = Callable[..., HttpTransport]
PASSWORD = "correct horse"
BODY = b"the whole request"
BOTH_VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Certificate]:
    """Each of an authority of its own, made once."""
    folder = tmp_path_factory.mktemp("tls")
    made: dict[str, Certificate] = {}

    def named(name: str) -> Certificate:
        if name not in made:
            made[name] = certify(folder / name)
        return made[name]

    return named


@pytest.fixture
def trusted(certificates: Callable[[str], Certificate]) -> Certificate:
    """The receiver's."""
    return certificates("receiver")


@pytest.fixture
def ours(certificates: Callable[[str], Certificate], tmp_path: Path) -> Certificate:
    """The client's, which the receiver trusts, in files of this test."""
    return placed(certificates("ours"), tmp_path / "files")


@pytest.fixture
def renewed(certificates: Callable[[str], Certificate]) -> Certificate:
    """What comes after it."""
    return certificates("renewed")


@pytest.fixture
def make(trusted: Certificate) -> Iterator[Make]:
    made: list[HttpTransport] = []

    def make(port: int = 1, *, now: Callable[[], float] = HttpTransport.now, **arguments: Any) -> HttpTransport:
        timed: Any = type("Timed", (HttpTransport,), {"now": staticmethod(now)})
        settings = {"url": f"https://127.0.0.1:{port}/", "allow_private": True, "ca_file": str(trusted.authority)}
        made.append(timed(serializer="bytes", **settings | arguments))
        return made[-1]

    yield make
    for transport in made:
        transport.close()


def placed(certificate: Certificate, folder: Path) -> Certificate:
    """Copies into this folder, over those that are there."""
    folder.mkdir(exist_ok=True)
    return Certificate(*(Path(shutil.copy(each, folder / each.name)) for each in
                         (certificate.certificate, certificate.key, certificate.authority)))  # fmt: skip


def shown(certificate: Certificate) -> dict[str, str]:
    """The arguments."""
    return {"cert_file": str(certificate.certificate), "key_file": str(certificate.key)}


def in_one_file(certificate: Certificate, folder: Path) -> Path:
    file = folder / "both.pem"
    file.write_text(certificate.key.read_text() + certificate.certificate.read_text())
    return file


def encrypted(key: Path, folder: Path) -> Path:
    file = folder / "encrypted.key"
    subprocess.run(["openssl", "pkey", "-in", key, "-aes256", "-passout", f"pass:{PASSWORD}", "-out", file], check=True)
    return file


def demanding(
    receivers: Certificate, *trusts: Certificate, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    """Of a receiver that wants a certificate of one of these."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(receivers.certificate, receivers.key)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = context.maximum_version = version
    for each in trusts:
        context.load_verify_locations(each.authority)
    return context


def noting(context: ssl.SSLContext, seen: list[bytes | None], *, keeps: bool = False) -> Serve:
    """Accepts items, and notes the certificate of each connection."""

    def serve(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as connection:
            seen.append(connection.getpeercert(binary_form=True))
            accept(connection)
            while keeps and connection.recv(1):
                accept(connection)

    return serve


def der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.certificate.read_text())


# ── What is shown ────────────────────────────────────────────────────────────────────────────────────


@BOTH_VERSIONS
@pytest.mark.parametrize("form", ["two files", "one file", "encrypted"])
def test_a_receiver_that_wants_a_certificate_gets_it(
    make: Make, trusted: Certificate, ours: Certificate, tmp_path: Path, form: str, version: ssl.TLSVersion
) -> None:
    arguments = {
        "two files": lambda: shown(ours),
        "one file": lambda: {"cert_file": str(in_one_file(ours, tmp_path))},
        "encrypted": lambda: shown(ours) | {"key_file": str(encrypted(ours.key, tmp_path)), "key_password": PASSWORD},
    }[form]()
    seen: list[bytes | None] = []
    with server(noting(demanding(trusted, ours, version=version), seen)) as port:
        assert make(port, **arguments)(make_item(), b"") is None
    assert seen == [der(ours)]


def test_a_receiver_that_wants_none_gets_the_item_all_the_same(
    make: Make, trusted: Certificate, ours: Certificate
) -> None:
    with server(over_tls(trusted, accept)) as port:
        assert make(port, **shown(ours))(make_item(), b"") is None


def test_a_receiver_that_asks_for_the_certificate_only_for_some_paths_gets_it(
    make: Make, trusted: Certificate, ours: Certificate
) -> None:
    """As Apache does: it asks once it has read the request (RFC 8446, 4.6.2)."""
    context = demanding(trusted, ours)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.post_handshake_auth = True
    seen: list[bytes | None] = []

    def ask_late(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as connection:
            request = connection.recv(65_536)
            seen.append(connection.getpeercert(binary_form=True))
            connection.verify_client_post_handshake()
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")  # sends the question, too
            connection.settimeout(0.01)
            while connection.getpeercert() is None or not request.endswith(BODY):
                with suppress(TimeoutError):
                    request += connection.recv(65_536)
            seen.append(connection.getpeercert(binary_form=True))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with server(ask_late) as port:
        assert make(port, **shown(ours))(make_item(), BODY) is None
    assert seen == [None, der(ours)]


def test_a_stranger_does_not_see_the_certificate(
    make: Make, trusted: Certificate, ours: Certificate, tmp_path: Path
) -> None:
    """Neither one of a strange authority, nor one with a certificate for another name."""
    other_name = certify(tmp_path / "other", names="DNS:other.example")
    seen: list[bytes | None] = []
    for receiver, authority in ((other_name, other_name), (other_name, trusted)):
        with server(noting(demanding(receiver, ours), seen)) as port:
            said = outage(make(port, ca_file=str(authority.authority), **shown(ours))(make_item(), b""))
        assert "CERTIFICATE_VERIFY_FAILED" in said
    assert seen == []


# ── Faults that are found at the start ───────────────────────────────────────────────────────────────


def misplaced(ours: Certificate, renewed: Certificate, folder: Path) -> dict[str, tuple[dict[str, str], str]]:
    """Arguments that cannot work, and what is said."""
    certificate, key, missing = str(ours.certificate), str(ours.key), str(folder / "missing.pem")
    closed = str(encrypted(ours.key, folder))
    cut = folder / "cut.pem"
    cut.write_bytes(ours.certificate.read_bytes()[:200])
    broken = folder / "broken.pem"
    broken.write_text(ours.certificate.read_text().replace("M", "?"))
    return {
        "no file": ({"cert_file": missing}, f"cert_file '{missing}' cannot be used: No such file or directory"),
        "a folder": ({"cert_file": str(folder)}, f"cert_file '{folder}' cannot be used: Is a directory"),
        "no key file": (
            {"cert_file": certificate, "key_file": missing},
            f"key_file '{missing}' cannot be used: No such file or directory",
        ),
        "a key as certificate": (
            {"cert_file": key},
            f"cert_file '{key}' cannot be used: it holds no certificate in PEM",
        ),
        "cut off": ({"cert_file": str(cut)}, f"cert_file '{cut}' cannot be used: it holds no certificate in PEM"),
        "broken": ({"cert_file": str(broken), "key_file": key}, f"cert_file '{broken}' cannot be used: "),
        "no key": (
            {"cert_file": certificate},
            f"cert_file '{certificate}' cannot be used: it holds no private key in PEM; if the key has a file of its own",
        ),
        "a certificate as key": (
            {"cert_file": certificate, "key_file": certificate},
            f"key_file '{certificate}' cannot be used: it holds no private key in PEM",
        ),
        "another key": (
            {"cert_file": certificate, "key_file": str(renewed.key)},
            f"the key in key_file '{renewed.key}' does not belong to the first certificate in cert_file '{certificate}'",
        ),
        "no password": (
            {"cert_file": certificate, "key_file": closed},
            f"the key in key_file '{closed}' is encrypted: set key_password",
        ),
        "a wrong password": (
            {"cert_file": certificate, "key_file": closed, "key_password": "hunter2"},
            f"key_password does not open the key in key_file '{closed}'",
        ),
        "a long password": (
            {"cert_file": certificate, "key_file": closed, "key_password": "hunter2" * 200},
            f"cert_file '{certificate}' cannot be used: password cannot be longer than 1024 bytes",
        ),
    }


def test_a_certificate_that_cannot_be_shown_is_refused_at_the_start(
    make: Make, ours: Certificate, renewed: Certificate, tmp_path: Path
) -> None:
    for arguments, said in misplaced(ours, renewed, tmp_path).values():
        with pytest.raises(BoxError) as refused:
            make(**arguments)
        assert str(refused.value).startswith(f"http: {said}")
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"key_file": "k"}, "key_file has a meaning only with cert_file"),
        ({"key_password": "p"}, "key_password has a meaning only with cert_file"),
        ({"url": "http://127.0.0.1/", "cert_file": "c"}, "cert_file has a meaning only with TLS"),
    ],
)
def test_an_argument_that_nothing_would_come_of_is_refused(make: Make, arguments: dict[str, str], said: str) -> None:
    with pytest.raises(BoxError, match=f"^http: {said}"):
        make(**arguments)


def test_empty_arguments_as_of_variables_without_a_value_are_no_certificate(make: Make, trusted: Certificate) -> None:
    with server(over_tls(trusted, accept)) as port:
        assert make(port, cert_file="", key_file="", key_password="")(make_item(), b"") is None


def test_a_password_is_not_in_what_python_prints_of_a_certificate() -> None:
    assert "hunter2" not in repr(ClientCertificate("c.pem", "k.pem", "hunter2"))


# ── Certificates end ─────────────────────────────────────────────────────────────────────────────────


def test_the_time_of_a_certificate_is_read_as_openssl_reads_it(ours: Certificate) -> None:
    printed = subprocess.run(
        ["openssl", "x509", "-in", ours.certificate, "-noout", "-dates"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    begin, end = (datetime.fromtimestamp(ssl.cert_time_to_seconds(line.partition("=")[2]), UTC) for line in printed)
    assert validity_of(ClientCertificate(**shown(ours))) == Validity(begin, end)


def test_a_certificate_of_the_next_century_and_of_many_bytes_is_read(tmp_path: Path) -> None:
    """Such a time is written in another form, and lengths beyond 255 in more bytes."""
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "40000",
        "-subj",
        "/CN=" + "long" * 16,
    ]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    begin, end = validity_of(ClientCertificate(str(certificate), str(key)))
    assert end - begin == timedelta(days=40000)


def test_a_certificate_that_has_expired_before_the_start_keeps_no_worker_from_starting(
    make: Make, trusted: Certificate, ours: Certificate, renewed: Certificate
) -> None:
    end = validity_of(ClientCertificate(**shown(ours))).end
    times, seen = [end.timestamp()], list[bytes | None]()
    with server(noting(demanding(trusted, renewed), seen)) as port:
        transport = make(port, **shown(ours), now=lambda: times[-1])
        assert f"'{ours.certificate}' expired on {end:%Y-%m-%d}" in outage(transport(make_item(), b""))
        placed(renewed, ours.certificate.parent)
        times.append(end.timestamp() - 1)
        assert transport(make_item(), b"") is None
    assert seen == [der(renewed)]


def test_with_an_expired_certificate_nothing_is_sent_until_it_is_renewed(
    make: Make, trusted: Certificate, ours: Certificate, renewed: Certificate
) -> None:
    """A receiver may answer it with 400, as nginx does, and all items would become dead letters."""
    end = validity_of(ClientCertificate(**shown(ours))).end.timestamp()
    times = [end - 1]
    seen: list[bytes | None] = []
    with server(noting(demanding(trusted, ours, renewed), seen)) as port:
        transport = make(port, **shown(ours), now=lambda: times[-1])
        times.append(end)
        said = outage(transport(make_item(), b""))
        assert "nothing was sent" in said
        assert f"the certificate in cert_file '{ours.certificate}' expired on" in said
        ours.certificate.unlink()
        assert "the files have changed since, but cert_file" in outage(transport(make_item(), b""))
        assert seen == []
        placed(renewed, ours.certificate.parent)
        times.append(end - 1)
        assert transport(make_item(), b"") is None
    assert seen == [der(renewed)]


def test_doctor_finds_certificates_that_nobody_has_renewed(ours: Certificate) -> None:
    certificate = ClientCertificate(**shown(ours))
    begin, end = validity_of(certificate)

    def told(now: datetime, of: ClientCertificate = certificate) -> Remark:
        (remark,) = CertificateCheckup({of: "a_item"}, now=now).remarks([])
        assert remark.box == "a_item"
        return remark

    two_days = end - begin
    assert not told(begin).is_finding
    assert not told(end - two_days * 0.21).is_finding
    assert told(end - two_days * 0.19).is_finding
    assert f"expires on {end:%Y-%m-%d}" in told(begin).text
    assert f"expired on {end:%Y-%m-%d}" in told(end).text
    assert "nothing is sent" in str(told(end).advice)
    gone = told(begin, ClientCertificate("missing.pem"))
    assert gone.is_finding
    assert gone.text == "a_item: cert_file 'missing.pem' cannot be used: No such file or directory."


def test_a_certificate_of_a_year_is_late_a_month_before_its_end() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    year = Validity(begin, begin + timedelta(days=365))
    assert not year.is_late(year.end - timedelta(days=31))
    assert year.is_late(year.end - timedelta(days=29))


# ── Files that change while a worker runs ────────────────────────────────────────────────────────────


def test_a_renewed_certificate_is_shown_with_the_next_connection(
    make: Make, trusted: Certificate, ours: Certificate, renewed: Certificate
) -> None:
    seen: list[bytes | None] = []
    with server(noting(demanding(trusted, ours, renewed), seen)) as port:
        transport = make(port, **shown(ours))
        assert transport(make_item(1), b"") is None
        old = der(ours)
        placed(renewed, ours.certificate.parent)
        assert transport(make_item(2), b"") is None
    assert seen == [old, der(renewed)]


def test_a_kept_connection_goes_on_when_the_certificate_is_renewed(
    make: Make, trusted: Certificate, ours: Certificate, renewed: Certificate
) -> None:
    seen: list[bytes | None] = []
    with server(noting(demanding(trusted, ours), seen, keeps=True)) as port:
        transport = make(port, **shown(ours))
        assert transport(make_item(1), b"") is None
        placed(renewed, ours.certificate.parent)
        assert transport(make_item(2), b"") is None
        transport.close()
    assert len(seen) == 1


def halves(ours: Certificate, renewed: Certificate) -> Iterator[str]:
    """What a reader may find while the files of the one are replaced with those of the other, piece by piece."""
    text = renewed.certificate.read_text()
    for part in ("", text[: len(text) // 2]):
        ours.certificate.write_text(part)
        yield f"the first {len(part)} bytes"
    ours.certificate.unlink()
    yield "gone"
    ours.certificate.write_text(text)
    yield "with the old key"
    ours.key.write_text(renewed.key.read_text()[:60])
    yield "with half a key"


def test_files_that_are_caught_half_written_leave_the_old_certificate_in_use(
    make: Make, trusted: Certificate, ours: Certificate, renewed: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    old, seen = der(ours), list[bytes | None]()
    with server(noting(demanding(trusted, ours, renewed), seen)) as port, caplog.at_level(logging.INFO, "boxengine"):
        transport = make(port, **shown(ours))
        for number, state in enumerate(halves(ours, renewed)):
            assert transport(make_item(number), b"") is None, state
        assert set(seen) == {old}
        (told,) = caplog.records
        assert told.levelno == logging.WARNING
        assert told.getMessage() == (
            f"http: cert_file '{ours.certificate}' cannot be used: it holds no certificate in PEM; connections are made with "
            "what was read before"
        )
        placed(renewed, ours.certificate.parent)
        assert [transport(make_item(number), b"") for number in range(2)] == [None, None]
    assert seen[-2:] == [der(renewed)] * 2
    _, told = caplog.records
    assert told.levelno == logging.INFO
    assert f"{ours.certificate} and {ours.key} again" in told.getMessage()


def test_a_disposable_transport_that_finds_a_file_half_written_costs_no_attempt(
    make: Make, ours: Certificate, renewed: Certificate
) -> None:
    carrier = Carrier(TransportSpec(name="http", build=partial(make, **shown(ours)), disposable=True))
    for _ in halves(ours, renewed):
        with pytest.raises(Unavailable, match="http: "):
            carrier.single()(make_item(), b"")


def test_the_systems_authorities_are_read_again_when_they_change(
    make: Make, trusted: Certificate, renewed: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = Path(shutil.copy(renewed.authority, tmp_path / "authorities.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    with server(over_tls(trusted, accept)) as port:
        transport = make(port, ca_file=None)
        assert "CERTIFICATE_VERIFY_FAILED" in outage(transport(make_item(), b""))
        shutil.copy(trusted.authority, authorities)
        assert transport(make_item(), b"") is None


def test_authorities_are_read_again_when_their_file_changes_and_kept_while_it_is_half_written(
    make: Make, trusted: Certificate, renewed: Certificate, tmp_path: Path
) -> None:
    authorities = Path(shutil.copy(trusted.authority, tmp_path / "authorities.pem"))
    with server(over_tls(trusted, accept)) as before, server(over_tls(renewed, accept)) as after:
        old, new = (make(port, ca_file=str(authorities)) for port in (before, after))
        assert "CERTIFICATE_VERIFY_FAILED" in outage(new(make_item(), b""))
        authorities.write_bytes(renewed.authority.read_bytes()[:100])
        assert old(make_item(), b"") is None
        shutil.copy(renewed.authority, authorities)
        assert new(make_item(), b"") is None
        assert "CERTIFICATE_VERIFY_FAILED" in outage(old(make_item(), b""))


# ── Receivers that refuse it ─────────────────────────────────────────────────────────────────────────


def refusing(context: ssl.SSLContext) -> Serve:
    """Closes at once, whatever the client is still sending."""

    def serve(client: socket.socket) -> None:
        with suppress(ssl.SSLError):
            context.wrap_socket(client.dup(), server_side=True)
        wait_for_its_arrival(client)

    return serve


def wait_for_its_arrival(connection: socket.socket) -> None:
    """Until what was sent is at the client. Closed before, with a request unread, the system might never send it."""
    queued = bytearray(4)

    def arrived() -> bool:
        fcntl.ioctl(connection, termios.TIOCOUTQ, queued)
        return not any(queued)

    eventually(arrived)


@BOTH_VERSIONS
@pytest.mark.parametrize("body", [b"", b"x" * 2_000, LARGE], ids=["empty", "small", "large"])
@pytest.mark.parametrize(
    ("shows", "advice"),
    [
        (False, "the receiver may want a client certificate: see cert_file"),
        (True, "the receiver does not know the issuer of the certificate in cert_file"),
    ],
    ids=["none", "a strange one"],
)
def test_a_receiver_that_refuses_our_certificate_costs_no_attempt_however_often(
    make: Make,
    trusted: Certificate,
    ours: Certificate,
    renewed: Certificate,
    version: ssl.TLSVersion,
    body: bytes,
    shows: bool,
    advice: str,
) -> None:
    """In TLS 1.3 the request is under way by then, and the refusal is lost to a client that stops at the first error."""
    with server(refusing(demanding(trusted, renewed, version=version))) as port:
        transport = make(port, **(shown(ours) if shows else {}))
        for _ in range(10):
            said = outage(transport(make_item(), body))
            assert said.startswith(f"http: nothing was sent to 127.0.0.1: no connection to port {port}: TLS: [SSL: ")
            assert f"({advice}" in said


def until_done(step: Callable[[], Any], client: socket.socket, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> Any:
    """What the step returns, with everything received that it needs."""
    while True:
        try:
            done = step()
        except ssl.SSLWantReadError:
            client.sendall(outgoing.read())
            incoming.write(client.recv(65_536))
        else:
            client.sendall(outgoing.read())
            return done


def test_an_alert_that_is_not_about_the_certificate_leaves_open_whether_the_item_arrived(
    make: Make, trusted: Certificate
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted.certificate, trusted.key)

    def fail_late(client: socket.socket) -> None:
        """Reads the request, and then meets something that is none of TLS."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = context.wrap_bio(incoming, outgoing, server_side=True)
        until_done(secured.do_handshake, client, incoming, outgoing)
        request = b""
        while not request.endswith(BODY):
            request += until_done(secured.read, client, incoming, outgoing)
        incoming.write(b"\x17\x03\x03\x00\x20" + bytes(32))
        with suppress(ssl.SSLError):
            secured.read()
        client.sendall(outgoing.read())  # the alert
        client.recv(65_536)  # open until the client has read it

    with server(fail_late) as port:
        said = outage(make(port)(make_item(), BODY))
    assert "whether it got the request is unknown" in said
    assert "ALERT_BAD_RECORD_MAC" in said


def test_an_answer_that_comes_before_the_whole_request_is_read_over_tls_too(make: Make, trusted: Certificate) -> None:
    def too_large(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        wait_for_its_arrival(connection)

    with server(over_tls(trusted, too_large)) as port:
        result = make(port)(make_item(), LARGE)
    assert isinstance(result, Failure)
    assert "413 Content Too Large" in str(result)
