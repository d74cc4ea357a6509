"""A small HTTP server for probes and metrics: a few fixed paths, each answered by a function.

It does not use the console's Starlette and uvicorn, even where those are installed: with them a worker's probes answered
after 1.7 s instead of 0.8 and took 8 MB more (medians of seven starts each), and a request that arrives byte by byte had no
time limit.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from boxengine.errors import PortTaken

logger = logging.getLogger(__name__)
EVERYWHERE = "0.0.0.0"  # noqa: S104 - probes come from outside the container
T = TypeVar("T")
PATIENCE = 5.0
"""Seconds a client has to send its whole request, and again to receive the answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as far as routes need it."""

    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a request."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] | None = None

    @classmethod
    def json(cls, value: object, *, status: int = 200) -> Response:
        """``value`` as a JSON document."""
        return cls(status, "application/json", json.dumps(value).encode() + b"\n")


Route = Callable[[Request], Response]


class HttpService:
    """Serves its routes on one port, from named daemon threads. ``start`` and ``stop`` may each be called twice."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        *,
        port: int,
        key: str,
        host: str = EVERYWHERE,
        patience: float = PATIENCE,
    ) -> None:
        """
        Args:
            routes: by path.
            port: 0: a free one, see ``port`` after the start.
            key: where the port is configured, for messages: ``probes.port``.
            host: the address to listen on; by default all, of IPv4 and IPv6.
            patience: seconds a client has to send its whole request, and again to receive the answer.
        """
        self._patience = patience
        self._routes = dict(routes)
        self._address = (host, port)
        self._key = key
        self._lock = threading.Lock()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on; before the start, the configured one."""
        server = self._server
        return int(server.server_address[1]) if server else self._address[1]

    def start(self) -> None:
        """Binds the port and serves.

        Raises:
            PortTaken: the port is not available; the message names the key to change.
        """
        with self._lock:
            if self._server is not None:
                return
            try:
                server = self._listening()
            except (OSError, OverflowError) as error:
                raise PortTaken(self._complaint(error)) from error
            # A stop takes at most this interval: the thread wakes up that often.
            self._thread = threading.Thread(
                target=server.serve_forever,
                kwargs={"poll_interval": 0.2},
                name=f"boxengine-http-{self._key}",
                daemon=True,
            )
            self._thread.start()
            self._server = server

    def stop(self) -> None:
        """Frees the port; does not wait for answers under way, which finish by themselves."""
        with self._lock:
            server, thread = self._server, self._thread
            self._server = self._thread = None
            if server is None or thread is None:
                return
            server.shutdown()
            server.server_close()
            thread.join()

    def _listening(self) -> _Server:
        return listening(*self._address, lambda *address: _Server(address, self._routes, patience=self._patience))

    def _complaint(self, error: Exception) -> str:
        host, port = self._address
        text = f"{self._key}: cannot listen on {host}:{port}: {error}"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            text += (
                f". Another `boxengine start` or `consume` on this machine? Then one of the two needs another {self._key}: "
                f"in a second --config FILE, or from the environment, as ${{PORT:-{port}}}"
            )
        return text


def listening(host: str, port: int, listen: Callable[[str, int], T]) -> T:
    """What ``listen`` makes for an address. If every address is meant, of IPv6, too: where a cluster has no IPv4, no request
    would arrive.

    Raises:
        OSError: the address is not available.
    """
    if host == EVERYWHERE and socket.has_dualstack_ipv6():
        try:
            return listen("::", port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
    return listen(host, port)


def services(endpoints: Iterable[tuple[str, int, Mapping[str, Route]]], *, host: str = EVERYWHERE) -> list[HttpService]:
    """One server per port; endpoints that name the same port share one.

    Args:
        endpoints: for each one, the configuration key of its port, the port, and its routes.
        host: see ``HttpService``.
    """
    by_port: dict[int, tuple[list[str], dict[str, Route]]] = {}
    for key, port, routes in endpoints:
        keys, together = by_port.setdefault(port, ([], {}))
        keys.append(key)
        together.update(routes)
    return [HttpService(routes, port=port, key=", ".join(keys), host=host) for port, (keys, routes) in by_port.items()]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A restarted worker can take its port again at once, but two running workers cannot share it.
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], routes: Mapping[str, Route], *, patience: float) -> None:
        self.routes = routes
        self.patience = patience
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own method looks up the host's name, which hangs if the resolver hangs.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "boxengine", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        threading.Thread(
            target=self.process_request_thread,
            args=(request, client_address),
            name="boxengine-http-answer",
            daemon=True,
        ).start()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's shape
        # A client that went away is not worth a message.
        logger.debug("a request was not answered", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "boxengine"
    sys_version = ""

    def setup(self) -> None:
        """Sets one deadline for the whole request, however small its pieces are."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_UntilDeadline(self.connection, patience=self.server.patience))

    def do_GET(self) -> None:
        """Answers; a route that raises is a 500 with a short reason."""
        try:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
        except ValueError as error:
            self._send(Response.json({"error": f"bad request: {error}"}, status=HTTPStatus.BAD_REQUEST))
            return
        route = self.server.routes.get(url.path)
        if route is None:
            known = sorted(self.server.routes)
            self._send(Response.json({"error": "not found", "paths": known}, status=HTTPStatus.NOT_FOUND))
            return
        try:
            response = route(Request(url.path, query, dict(self.headers.items())))
        except Exception as error:
            logger.exception("%s could not be answered", url.path)
            response = Response.json(
                {"error": f"{type(error).__name__}: {error}"}, status=HTTPStatus.INTERNAL_SERVER_ERROR
            )
        self._send(response)

    def do_HEAD(self) -> None:
        """As GET, without the body."""
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's shape
        logger.debug(format, *args)

    def _send(self, response: Response) -> None:
        # For one sendall this timeout covers the whole call.
        self.connection.settimeout(self.server.patience)
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        for name, value in (response.headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)


class _UntilDeadline(io.RawIOBase):
    """Reads from a socket until a deadline. A socket timeout alone would start again with each byte."""

    def __init__(self, connection: socket.socket, *, patience: float) -> None:
        self._connection = connection
        self._until = time.monotonic() + patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request was not complete in time")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
