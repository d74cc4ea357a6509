"""TLS of new connections: whom a webhook trusts (``ca_file``), and the certificate that it shows (``cert_file``).

Certificates are renewed while a worker runs: what renews them rewrites their files every few hours or days. So the files are
looked at before each new connection. Whoever reads them may catch them half-written, or the certificate of today beside the
key of yesterday: until they fit again, connections are made with what was read before.
"""

from __future__ import annotations

import logging
import re
import ssl
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Self

from boxengine.errors import BoxError

logger = logging.getLogger(__name__)

CERTIFICATE = ("cert_file", "key_file", "key_password")
"""Arguments of the transport."""
_CERTIFICATE = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END ", re.DOTALL)
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_ALERT = re.compile(r"ALERT_(\w+)")
_ABOUT_THE_CERTIFICATE = frozenset(
    {
        "ACCESS_DENIED",
        "BAD_CERTIFICATE",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_REQUIRED",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_UNKNOWN",
        "DECRYPT_ERROR",
        "HANDSHAKE_FAILURE",
        "NO_CERTIFICATE",
        "UNKNOWN_CA",
        "UNSUPPORTED_CERTIFICATE",
    }
)
"""Alerts that end a handshake (RFC 8446, 6.2) because of the client's certificate, or for lack of one."""
_WITHOUT_ONE = frozenset({"BAD_CERTIFICATE", "CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "NO_CERTIFICATE"})
"""Those that a client gets that has shown none."""
_VERSION, _TWO_DIGITS_OF_THE_YEAR, _SHORT = 0xA0, 0x17, 0x7F
"""In DER: two kinds of elements, and the longest length that stands in one byte."""
_LATE = timedelta(days=30)
"""This long before its end, somebody should see to a certificate that people renew by hand."""
_LATE_PART = 5
"""Programs renew certificates when a third of their time is left, and some live for hours: less than a fifth is late."""

_Mark = tuple[int, ...]
"""Of a file: what changes with its contents or rights."""


class Unusable(Exception):
    """The files cannot be used; says which, why, and what to do."""


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """The certificate to show to receivers that ask for one: the files that hold it."""

    cert_file: str
    """In PEM, with the intermediate certificates after it."""
    key_file: str | None = None
    """None: its key is in ``cert_file``."""
    key_password: str | None = field(default=None, repr=False)
    """Of an encrypted key."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self | None:
        """That of a transport with these arguments.

        Raises:
            BoxError: see ``demand_use``.
        """
        for name in CERTIFICATE:
            demand_use(arguments, name)
        cert_file, key_file, key_password = (arguments.get(name) or None for name in CERTIFICATE)
        return None if cert_file is None else cls(cert_file, key_file, key_password)

    @property
    def key(self) -> str:
        """The file with the key."""
        return self.key_file or self.cert_file

    @property
    def place_of_the_key(self) -> str:
        """With the name of its argument."""
        return f"key_file {self.key_file!r}" if self.key_file else f"cert_file {self.cert_file!r}"


class Validity(NamedTuple):
    """From when until when a certificate may be used."""

    begin: datetime
    end: datetime

    def is_late(self, now: datetime) -> bool:
        """Whether it should have been renewed by now."""
        return self.end - now < min(_LATE, (self.end - self.begin) / _LATE_PART)


def demand_use(arguments: Mapping[str, Any], name: str) -> None:
    """Refuses an argument that nothing would come of.

    Raises:
        BoxError: it is about a certificate, and there is none, or no TLS.
    """
    if not arguments.get(name):
        return
    if name != "cert_file" and not arguments.get("cert_file"):
        raise BoxError(f"http: {name} has a meaning only with cert_file, the certificate that it belongs to")
    if str(arguments["url"]).strip().lower().startswith("http://"):
        raise BoxError(f"http: {name} has a meaning only with TLS: the url begins with http://, not https://")


class Contexts:
    """The context of the next connection. All threads share it; it is made anew when a file has changed."""

    def __init__(
        self,
        make: Callable[[], ssl.SSLContext],
        *,
        ca_file: str | None,
        certificate: ClientCertificate | None,
        now: Callable[[], float],
    ) -> None:
        """
        Args:
            make: a context that verifies servers, and trusts nobody yet.
            ca_file: authorities to trust; None: the system's.
            certificate: shown to a receiver that asks for one.
            now: Unix time in seconds.

        Raises:
            Unusable: a file cannot be used. That a certificate has expired does not count here: it must not keep other boxes
                from their worker.
        """
        self._make = make
        self._ca_file = ca_file
        self._certificate = certificate
        self._now = now
        system = ssl.get_default_verify_paths()
        trusted = (system.cafile, system.capath) if ca_file is None else (ca_file,)
        shown = () if certificate is None else (certificate.cert_file, certificate.key_file)
        self._watched = [each for each in (*trusted, *shown) if each]
        self._lock = Lock()
        self._kept_because: str | None = None
        """What is wrong with the files since they changed; None: nothing."""
        self._seen = self._look()
        self._context, self._validity = self._read()

    @property
    def shows_a_certificate(self) -> bool:
        """Whether a receiver that asks for one gets it."""
        return self._certificate is not None

    def current(self) -> ssl.SSLContext:
        """The context for a new connection.

        Raises:
            Unusable: the certificate has expired. Some servers answer it with 400, as if each item were wrong.
        """
        with self._lock:
            seen = self._look()
            if seen != self._seen:
                self._renew(seen)
            if (expired := self._expired(self._validity)) is not None:
                since = f" (the files have changed since, but {self._kept_because})" if self._kept_because else ""
                raise Unusable(expired + since)
            return self._context

    def _renew(self, seen: list[_Mark | None]) -> None:
        try:
            self._context, self._validity = self._read_anew()
        except Unusable as error:
            # Not noted as seen: each connection tries again.
            if self._kept_because is None:
                logger.warning("http: %s; connections are made with what was read before", error)
            self._kept_because = str(error)
        else:
            self._seen = seen
            self._kept_because = None
            logger.info("http: read %s again, because a file has changed", " and ".join(self._watched))

    def _look(self) -> list[_Mark | None]:
        """What changes with the files. Taken before they are read: what is written meanwhile is read the next time."""
        return [_mark(each) for each in self._watched]

    def _read(self) -> tuple[ssl.SSLContext, Validity | None]:
        context = self._make()
        if self._ca_file is None:
            context.load_default_certs()
        else:
            _trust(context, self._ca_file)
        if self._certificate is None:
            return context, None
        return context, _show(context, self._certificate)

    def _read_anew(self) -> tuple[ssl.SSLContext, Validity | None]:
        """What may take the place of what was read before."""
        context, validity = self._read()
        if (expired := self._expired(validity)) is not None:
            raise Unusable(expired)
        return context, validity

    def _expired(self, validity: Validity | None) -> str | None:
        """What to say of our certificate if its time is over."""
        if self._certificate is None or validity is None or self._now() < validity.end.timestamp():
            return None
        return (
            f"the certificate in cert_file {self._certificate.cert_file!r} expired on {validity.end:%Y-%m-%d at %H:%M} UTC: "
            "renew it"
        )


def validity_of(certificate: ClientCertificate) -> Validity:
    """From when until when it may be used. It may have expired.

    Raises:
        Unusable: it cannot be shown.
    """
    return _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)


def is_refusal(error: Exception) -> bool:
    """Whether the receiver ended the handshake on account of the client's certificate."""
    return _alert(error) in _ABOUT_THE_CERTIFICATE


def advice(error: Exception, *, shown: bool) -> str:
    """What to do about a handshake that the receiver ended, in brackets.

    Args:
        shown: whether it could have a certificate.
    """
    alert = _alert(error)
    if not shown:
        return " (the receiver may want a client certificate: see cert_file)" if alert in _WITHOUT_ONE else ""
    if alert == "UNKNOWN_CA":
        return (
            " (the receiver does not know the issuer of the certificate in cert_file: have it trusted there, and put "
            "intermediate certificates into the file, after the first)"
        )
    if alert in _ABOUT_THE_CERTIFICATE:
        return " (the receiver refused the certificate in cert_file: ask there which one is expected)"
    return ""


def _alert(error: Exception) -> str | None:
    found = _ALERT.search(getattr(error, "reason", None) or "")
    return found[1] if found else None


def _mark(path: str) -> _Mark | None:
    try:
        state = Path(path).stat()
    except OSError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _trust(context: ssl.SSLContext, ca_file: str) -> None:
    try:
        context.load_verify_locations(cafile=ca_file)
    except ssl.SSLError as error:
        empty = error.reason == "NO_CERTIFICATE_OR_CRL_FOUND"
        reason = "it holds no certificate" if empty else "a certificate in it is cut off or damaged"
        raise Unusable(f"ca_file {ca_file!r} cannot be used: {reason}") from error
    except OSError as error:
        raise Unusable(f"ca_file {ca_file!r} cannot be used: {error.strerror}") from error


def _show(context: ssl.SSLContext, certificate: ClientCertificate) -> Validity:
    """Has the context show it."""
    cert_file = certificate.cert_file
    found = _CERTIFICATE.search(_text("cert_file", cert_file))
    if found is None:
        raise Unusable(f"cert_file {cert_file!r} cannot be used: it holds no certificate in PEM")
    if _KEY.search(_text("key_file", certificate.key)) is None:
        hint = "" if certificate.key_file else "; if the key has a file of its own, name that in key_file"
        raise Unusable(f"{certificate.place_of_the_key} cannot be used: it holds no private key in PEM{hint}")
    asked = False

    def password() -> str:
        # Without a call that answers, OpenSSL asks on the terminal.
        nonlocal asked
        asked = True
        return certificate.key_password or ""

    try:
        context.load_cert_chain(cert_file, certificate.key, password)
        return _validity(b64decode(found[1]))
    except ssl.SSLError as error:
        raise Unusable(_misfit(certificate, error, asked=asked)) from error
    except (OSError, ValueError) as error:
        raise Unusable(f"cert_file {cert_file!r} cannot be used: {error}") from error


def _text(name: str, path: str) -> str:
    try:
        return Path(path).read_text("latin-1")
    except (OSError, ValueError) as error:
        raise Unusable(f"{name} {path!r} cannot be used: {getattr(error, 'strerror', None) or error}") from error


def _misfit(certificate: ClientCertificate, error: ssl.SSLError, *, asked: bool) -> str:
    place = certificate.place_of_the_key
    if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
        return f"the key in {place} does not belong to the first certificate in cert_file {certificate.cert_file!r}"
    if asked and certificate.key_password is None:
        return f"the key in {place} is encrypted: set key_password"
    if asked:
        return f"key_password does not open the key in {place}"
    return f"cert_file {certificate.cert_file!r} cannot be used: {error}"


def _validity(certificate: bytes) -> Validity:
    """Python tells it only of a certificate that it has received."""
    (_, whole), *_ = _elements(certificate)
    (_, signed), *_ = _elements(whole)
    fields = [each for each in _elements(signed) if each[0] != _VERSION]
    begin, end = (_moment(kind, value) for kind, value in _elements(fields[3][1]))  # after number, algorithm and issuer
    return Validity(begin, end)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a sequence: kind and content (X.690, 8.1)."""
    position = 0
    while position < len(der):
        kind, length = der[position], der[position + 1]
        position += 2
        if length > _SHORT:
            size = length - _SHORT - 1
            length = int.from_bytes(der[position : position + size])
            position += size
        yield kind, der[position : position + length]
        position += length


def _moment(kind: int, value: bytes) -> datetime:
    shape = "%y%m%d%H%M%SZ" if kind == _TWO_DIGITS_OF_THE_YEAR else "%Y%m%d%H%M%SZ"
    return datetime.strptime(value.decode("ascii"), shape).replace(tzinfo=UTC)
