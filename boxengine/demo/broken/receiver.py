"""The service that receives orders, and the transport that sends them to it."""

from __future__ import annotations

import http.client
import json
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from boxengine.domain.item import Item
from boxengine.domain.outcome import Failure
from boxengine.embedded.process import free_port
from boxengine.errors import Unavailable

POISON = "GOLD"
"""A currency that the receiver does not know."""


class Post:
    """Sends an item's payload to the receiver."""

    def __init__(self, port: str | int) -> None:
        self._port = int(port)

    def __call__(self, item: Item, payload: bytes) -> Failure | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("POST", "/orders", body=payload, headers={"Idempotency-Key": item.uuid})
            answer = connection.getresponse()
            said = answer.read(200).decode(errors="replace")
        except OSError as error:
            raise Unavailable(f"billing at 127.0.0.1:{self._port}: {error.strerror or error}") from error
        finally:
            connection.close()
        return None if answer.status == HTTPStatus.OK else Failure(f"{answer.status} {said}")


class Receiver:
    """Listens while it is up, and on the same port each time."""

    def __init__(self) -> None:
        self.port = 0
        """Known from the first start on."""
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> None:
        while self._server is None:
            port = self.port or free_port()
            try:
                self._server = ThreadingHTTPServer(("127.0.0.1", port), _Orders)
            except OSError:
                if self.port:
                    raise
                continue  # somebody took the port just now
            self.port = port
            threading.Thread(target=self._server.serve_forever, name="boxengine-demo-receiver", daemon=True).start()

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


class _Orders(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        order = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        known = order.get("currency") != POISON
        body = b"" if known else f"unknown currency {POISON}".encode()
        self.send_response(HTTPStatus.OK if known else HTTPStatus.UNPROCESSABLE_ENTITY)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's shape
        """Logs nothing: nobody reads these messages."""
