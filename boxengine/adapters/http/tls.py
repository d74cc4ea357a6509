"""TLS of new connections: whom a webhook trusts (``ca_file``), and the certificate that it shows (``cert_file``).

Certificates are renewed while a worker runs: what renews them rewrites their files every few hours or days. So the files are
looked at before each new connection. Whoever reads them may catch them half-written, or the certificate of today beside the
key of yesterday: until they fit again, connections are made with what was read before.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from boxengine.adapters.http.client_certificate import ClientCertificate, Unusable, Validity, show

logger = logging.getLogger(__name__)

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
_Mark = tuple[int, ...]
"""Of a file: what changes with its contents or rights."""


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
        return context, show(context, self._certificate)

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
