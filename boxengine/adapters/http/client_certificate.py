"""The certificate that a webhook shows to receivers that ask for one (``cert_file``): its files, and how long it may be used."""

from __future__ import annotations

import re
import ssl
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

from boxengine.errors import BoxError

CERTIFICATE = ("cert_file", "key_file", "key_password")
"""Arguments of the transport."""
_CERTIFICATE = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END ", re.DOTALL)
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_VERSION, _TWO_DIGITS_OF_THE_YEAR, _SHORT = 0xA0, 0x17, 0x7F
"""In DER: two kinds of elements, and the longest length that stands in one byte."""
_LATE = timedelta(days=30)
"""This long before its end, somebody should see to a certificate that people renew by hand."""
_LATE_PART = 5
"""Programs renew certificates when a third of their time is left, and some live for hours: less than a fifth is late."""


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


def validity_of(certificate: ClientCertificate) -> Validity:
    """From when until when it may be used. It may have expired.

    Raises:
        Unusable: it cannot be shown.
    """
    return show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate)


def show(context: ssl.SSLContext, certificate: ClientCertificate) -> Validity:
    """Has the context show it. Returns from when until when it may be used.

    Raises:
        Unusable: it cannot be shown.
    """
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
