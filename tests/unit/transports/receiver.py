"""A webhook's receiver: the standard library's HTTP server, on loopback, answering as a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread


@dataclass(frozen=True)
class Request:
    """What came in. Names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    """Its number."""


Reply = tuple[int, dict[str, str], bytes]


def accept(_request: Request) -> Reply:
    return 204, {}, b""


@dataclass
class Receiver:
    """Keeps the requests and says where it listens. ``reply`` may block; it is called in a thread of the server's."""

    port: int = 0
    reply: Callable[[Request], Reply] = accept
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    """Connections that are open now."""
    lock: Lock = field(default_factory=Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


class QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is part of some tests."""


@contextmanager
def receiver(host: str = "127.0.0.1") -> Iterator[Receiver]:
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            with state.lock:
                state.connections += 1
                state.open += 1
                self.connection_number = state.connections

        def finish(self) -> None:
            super().finish()
            with state.lock:
                state.open -= 1

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, headers, body, self.connection_number)
            with state.lock:
                state.requests.append(request)
            status, extra, content = state.reply(request)
            self.send_response(status)
            for name, value in extra.items():
                self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names http.server looks for

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's name
            """Silent."""

    server = QuietServer((host, 0), Handler)
    state.port = server.server_port
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
