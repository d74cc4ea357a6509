"""One URL and the connections to it. The only place that knows ``urllib3``."""

from __future__ import annotations

import math
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, partial
from http import HTTPStatus
from threading import Lock
from typing import Any, NamedTuple

from boxengine.adapters.http.client_certificate import ClientCertificate, Unusable
from boxengine.adapters.http.guard import Guard
from boxengine.adapters.http.head import HeadInTime
from boxengine.adapters.http.target import Target, method_of
from boxengine.adapters.http.tls import Contexts, advice, is_refusal
from boxengine.errors import BoxError, Unavailable

READ_AT_MOST = 64 * 1024
"""How many bytes of an answer are read to make the connection reusable; after more it is closed."""
ADDRESSES = 16
"""To how many addresses of the host connections are kept. A load balancer's change all the time."""
REUSED_WITHIN = 30.0
"""Seconds. A connection that was idle for longer is not used again: firewalls and load balancers forget idle connections, and
drop what is sent over them without a word."""
FINAL = 200
"""Statuses below are interim answers; ``HeadInTime`` passes over those that an answer follows."""
WITHOUT_BODY = frozenset({204, 304})


class NoAnswer(Exception):
    """The receiver did not answer."""


class NotConnected(NoAnswer):
    """There was no connection, so nothing was sent: refused, no such name, no route, TLS failed."""


class BrokenOff(NoAnswer):
    """The connection broke before an answer. Whether the receiver got the request is unknown."""


class Stale(NoAnswer):
    """A kept connection broke before an answer, or the answer is 408: most likely the receiver was closing it already."""


class NotInTime(NoAnswer):
    """The receiver is silent although, as far as is known, it has the request."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class Endpoint:
    """Sends requests to one URL, over kept connections, only to addresses that the guard lets through.

    It does not follow redirects or use proxies from the environment: either would bypass the guard.

    Raises:
        BoxError: ``urllib3`` is missing, or the URL is no absolute http(s) URL, carries credentials, or has a private
            address that is not allowed.
        Unavailable: a file that TLS needs cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        method: str,
        timeout: float,
        connections: int,
        allow_private: bool,
        ca_file: str | None,
        certificate: ClientCertificate | None,
        now: Callable[[], float],
    ) -> None:
        try:
            import urllib3  # noqa: PLC0415 - an optional dependency, needed from here on
        except ImportError as error:
            raise BoxError('the http transport needs urllib3: pip install "boxengine[http]"') from error
        self._urllib3 = urllib3
        target = Target.of(url, allow_private=allow_private)
        self.host = target.host
        self._port = target.port
        self._host_header = target.host_header
        self._target = target.path
        self._method = method_of(method)
        self._timeout = timeout
        self._connections = connections
        self._contexts = _contexts(ca_file, certificate, now) if target.secure else None
        self._guard = Guard(self.host, self._port, allow_private=allow_private)
        self._lock = Lock()
        self._pools: OrderedDict[str, Any] = OrderedDict()
        """By address, the one that was used last at the end."""

    def send(self, body: bytes | None, headers: Mapping[str, str | bytes]) -> Answer:
        """One request to the first address that can be connected to.

        Raises:
            NotConnected, BrokenOff, NotInTime: there was no answer.
            AddressRefused: the host may not be called.
            ValueError: a header that cannot be sent.
        """
        refused: Exception | None = None
        stale: Stale | None = None
        known = self._urllib3.exceptions
        for address in self._guard.addresses():
            try:
                try:
                    return self._exchange(self._pool(address), body, headers)
                except Stale as error:
                    stale = error
                    return self._exchange_anew(address, body, headers)
            except (known.NewConnectionError, known.ConnectTimeoutError, known.ClosedPoolError, NotConnected) as error:
                refused = error
                self._guard.failed(address)
                if stale is not None:
                    raise BrokenOff(str(stale)) from error
            except known.ReadTimeoutError as error:
                raise NotInTime(f"timed out after {self._timeout:g} s") from error
            except known.HTTPError as error:
                raise BrokenOff(f"{type(error).__name__}: {error}") from error
        self._guard.forget()
        # urllib3 puts the connection's repr in front of the system's reason.
        reason = refused.__cause__ if isinstance(refused, known.NewConnectionError) and refused.__cause__ else refused
        raise NotConnected(f"no connection to port {self._port}: {reason}") from refused

    def close(self) -> None:
        """Closes idle connections; a later ``send`` opens new ones."""
        with self._lock:
            pools, self._pools = self._pools, OrderedDict()
        for pool in pools.values():
            pool.close()

    def _exchange(self, pool: Any, body: bytes | None, headers: Mapping[str, str | bytes]) -> Answer:
        deadline = time.monotonic() + self._timeout
        response = pool.urlopen(
            self._method,
            self._target,
            body=body,
            headers=headers if "host" in headers else {"Host": self._host_header, **headers},
            redirect=False,
            retries=False,
            preload_content=False,
        )
        if response.status < FINAL:
            # The receiver goes on in another protocol, and what it says would be treated as the answer to the next item.
            response.close()
            raise BrokenOff(f"answered {response.status}, which is not a final response")
        if _ends_where_it_says(response):
            body = self._read(response, deadline)
        else:
            # Closed before anything is read: reading to the end would return the connection to the pool.
            response.close()
            body = b""
        return Answer(response.status, response.reason or "", response.headers, body)

    def _exchange_anew(self, address: str, body: bytes | None, headers: Mapping[str, str | bytes]) -> Answer:
        """The same over a connection of its own: other kept ones may be as stale."""
        pool = self._connect(address)
        try:
            return self._exchange(pool, body, headers)
        finally:
            pool.close()

    def _read(self, response: Any, deadline: float) -> bytes:
        """The beginning of the answer. The status is already known, so a failure here costs only the connection."""
        body = b""
        try:
            while len(body) < READ_AT_MOST and time.monotonic() < deadline:
                chunk = response.read1(READ_AT_MOST)
                if not chunk:
                    response.release_conn()
                    return body
                body += chunk
        except self._urllib3.exceptions.HTTPError:
            pass
        response.close()
        return body

    def _pool(self, address: str) -> Any:
        with self._lock:
            if address not in self._pools:
                self._pools[address] = self._connect(address)
            self._pools.move_to_end(address)
            if len(self._pools) > ADDRESSES:
                _, unused = self._pools.popitem(last=False)
                unused.close()
            return self._pools[address]

    def _connect(self, address: str) -> Any:
        options: dict[str, Any] = {"maxsize": self._connections, "timeout": self._timeout}
        plain, tls = _pools()
        if self._contexts is None:
            return plain(address, self._port, **options)
        # The certificate is checked against the name in the URL, not against the address that was checked, and by OpenSSL:
        # urllib3 would check it only after the handshake, in which a stranger has seen our own. A dot at the name's end keeps
        # resolvers from completing it, and stands in no certificate.
        name = self.host.removesuffix(".")
        pool = tls(address, self._port, server_hostname=name, cert_reqs="CERT_REQUIRED", **options)
        pool.contexts = self._contexts
        return pool


def _contexts(ca_file: str | None, certificate: ClientCertificate | None, now: Callable[[], float]) -> Contexts:
    """Whatever is wrong with a file is said at the start.

    A disposable transport is made anew for each call, and may find a file that is just being rewritten: that is no item's fault.
    """
    from urllib3.util import create_urllib3_context  # noqa: PLC0415 - as in Endpoint

    try:
        make = partial(create_urllib3_context, cert_reqs=ssl.CERT_REQUIRED)
        return Contexts(make, ca_file=ca_file, certificate=certificate, now=now)
    except Unusable as error:
        raise Unavailable(f"http: {error}") from error


class _ForgetsIdleConnections:
    """Part of a pool of urllib3's: a connection that was idle for long is closed, and connects anew with its next request."""

    def _get_conn(self, timeout: float | None = None) -> Any:
        conn: Any = super()._get_conn(timeout)  # type: ignore[misc] # of the pool
        if time.monotonic() > getattr(conn, "reused_until", math.inf):
            conn.close()
        return conn

    def _put_conn(self, conn: Any) -> None:
        if conn is not None:
            conn.reused_until = time.monotonic() + REUSED_WITHIN
        super()._put_conn(conn)  # type: ignore[misc] # of the pool


class _ReadsFilesAgain:
    """Part of a pool of urllib3's: a new connection trusts and shows what the files hold now. One that is kept goes on."""

    contexts: Contexts

    def _validate_conn(self, conn: Any) -> None:
        if conn.is_closed:
            conn.ssl_context = self.contexts.current()
        super()._validate_conn(conn)  # type: ignore[misc] # of the pool


class _ReadsWhatIsLeft:
    """Part of a connection of urllib3's: if the receiver closes it before it has the whole request, what it said is read.

    It may have refused the certificate, or answered early. urllib3 reads it after a ``BrokenPipeError``, but over TLS, OpenSSL
    raises another error.
    """

    def request(self, *arguments: Any, **options: Any) -> None:
        try:
            super().request(*arguments, **options)  # type: ignore[misc] # of the connection
        except ssl.SSLEOFError as error:
            raise BrokenPipeError(str(error)) from error


@cache
def _pools() -> tuple[Any, Any]:
    """Classes of pools, without and with TLS, whose connections raise ``Stale`` and ``NotConnected``.

    urllib3 raises the same errors for a kept connection that the receiver closes, and for TLS that is not there in time or fails,
    as for a new connection that breaks, or stays silent, after a request was sent.
    """
    from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, exceptions  # noqa: PLC0415 - as in Endpoint
    from urllib3.connection import HTTPConnection, HTTPSConnection  # noqa: PLC0415
    from urllib3.util.ssl_match_hostname import CertificateError  # noqa: PLC0415

    class PlainPool(_ForgetsIdleConnections, HTTPConnectionPool):
        ConnectionCls: Any = _with_parts_of_ours(HTTPConnection)

        def _make_request(self, conn: Any, *arguments: Any, **options: Any) -> Any:
            kept = not conn.is_closed
            try:
                response = super()._make_request(conn, *arguments, **options)
            except ConnectionError as error:
                if not kept:
                    raise
                raise Stale(f"{type(error).__name__}: {error}") from error
            return _unless_closing(response, kept=kept)

    class TlsPool(PlainPool, _ReadsFilesAgain, HTTPSConnectionPool):
        ConnectionCls = _with_parts_of_ours(HTTPSConnection)

        def _validate_conn(self, conn: Any) -> None:
            """Connects; urllib3 calls it before it sends anything."""
            try:
                super()._validate_conn(conn)
            except (exceptions.NewConnectionError, exceptions.ConnectTimeoutError):
                raise
            except (OSError, exceptions.HTTPError, CertificateError, Unusable) as error:
                raise _without_tls(self.contexts, error) from error

        def _make_request(self, conn: Any, *arguments: Any, **options: Any) -> Any:
            kept = not conn.is_closed
            try:
                return super()._make_request(conn, *arguments, **options)
            except ssl.SSLError as error:
                # In TLS 1.3 a receiver looks at the certificate only after the client's side of the handshake. Other alerts,
                # such as an internal error, do not show that it has not read the request.
                if kept or not is_refusal(error):
                    raise
                raise _without_tls(self.contexts, error) from error

    return PlainPool, TlsPool


def _with_parts_of_ours(connection: type) -> type:
    return type(connection.__name__, (_ReadsWhatIsLeft, connection), {"response_class": HeadInTime})


def _without_tls(contexts: Contexts, error: Exception) -> NotConnected:
    return NotConnected(f"TLS: {error}{advice(error, shown=contexts.shows_a_certificate)}")


def _unless_closing(response: Any, *, kept: bool) -> Any:
    """The answer, unless it says 408 on a kept connection: some servers and load balancers do when they close an idle one."""
    if kept and response.status == HTTPStatus.REQUEST_TIMEOUT:
        response.close()
        raise Stale("answered 408")
    return response


def _ends_where_it_says(response: Any) -> bool:
    """Whether both ends agree where the answer ends; otherwise its rest would pass for the next request's answer."""
    lengths = {part.strip() for value in response.headers.getlist("content-length") for part in value.split(",")}
    coded = "transfer-encoding" in response.headers
    if response.status in WITHOUT_BODY:
        return not coded and lengths <= {"0"}
    return not (coded and lengths) and len(lengths) <= 1 and all(map(str.isdecimal, lengths))
