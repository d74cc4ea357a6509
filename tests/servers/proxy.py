"""A TCP proxy on loopback, which a test can make fail in the ways in which networks fail."""

from __future__ import annotations

import enum
import socket
import struct
import threading
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url

_CHUNK = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger on, zero seconds: close sends RST, as a dead host's kernel would


class _Mode(enum.Enum):
    PASS = enum.auto()
    STALL = enum.auto()
    CUT = enum.auto()


class FaultProxy:
    """Forwards connections to one server, until told otherwise.

    ``cut`` resets open and new connections; ``stall`` keeps connections open but lets nothing through, as when a cable is
    pulled; ``slow`` delays every piece of data; ``heal`` passes everything again, including what was held back;
    ``redirect`` and ``lead_new_to`` connect to another server.

    As a context manager it listens on entry, and closes everything on exit.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._mode = _Mode.PASS
        self._delay = timedelta(0)
        self._closing = False
        self._changed = threading.Condition()
        self._open: set[socket.socket] = set()
        self._ended: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """The port on which it listens on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    @classmethod
    def before(cls, url: str) -> Self:
        """A proxy in front of a server, given by a SQLAlchemy or Redis URL with host and port."""
        parsed = make_url(url)
        assert parsed.host is not None
        assert parsed.port is not None
        return cls(parsed.host, parsed.port)

    def url(self, url: str) -> str:
        """``url``, changed to go through the proxy."""
        return make_url(url).set(host="127.0.0.1", port=self.port).render_as_string(hide_password=False)

    def heal(self) -> None:
        """Pass everything at once."""
        self._switch(_Mode.PASS)

    def slow(self, delay: timedelta) -> None:
        """Delay every piece of data by ``delay``, in each direction."""
        self._switch(_Mode.PASS, delay=delay)

    def stall(self) -> None:
        """Hold everything back, without notice to either side."""
        self._switch(_Mode.STALL)

    def cut(self) -> None:
        """Reset all connections, and every new one, until ``heal``."""
        self._switch(_Mode.CUT)
        self._reset_all()

    def redirect(self, url: str) -> None:
        """Connect new clients to another server, and reset open connections, as a failover does."""
        self.lead_new_to(url)
        self._reset_all()

    def lead_new_to(self, url: str) -> None:
        """Connect new clients to another server, and leave open connections alone, as a moved address does."""
        parsed = make_url(url)
        assert parsed.host is not None
        assert parsed.port is not None
        self._target = (parsed.host, parsed.port)

    def __enter__(self) -> Self:
        self._spawn(self._accept, name="proxy: accept")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which close alone does not
        self._listener.close()
        self._reset_all()
        for thread in self._threads:
            thread.join(timeout=10)
            assert not thread.is_alive(), f"{thread.name} did not end"

    def _switch(self, mode: _Mode, *, delay: timedelta = timedelta(0)) -> None:
        with self._changed:
            self._mode, self._delay = mode, delay
            self._changed.notify_all()

    def _spawn(self, target: object, *arguments: object, name: str) -> None:
        assert callable(target)
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        """Connect a client to the server; during a stall, a new client is held at its first byte."""
        if not self._admit(client):
            return
        try:
            server = socket.create_connection(self._target)
        except OSError:
            self._reset(client)
            return
        if not self._admit(server):
            self._reset(client)
            return
        self._spawn(self._pump, client, server, name="proxy: to server")
        self._spawn(self._pump, server, client, name="proxy: to client")

    def _admit(self, end: socket.socket) -> bool:
        with self._changed:
            if not self._closing and self._mode is not _Mode.CUT:
                self._open.add(end)
                return True
        self._reset(end)
        return False

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(_CHUNK):
                if not self._may_pass(source):
                    break
                sink.sendall(data)
            if self._may_pass(source):
                sink.shutdown(socket.SHUT_WR)
                self._end(source, sink)
                return
        except OSError:
            pass
        self._reset(source)
        self._reset(sink)

    def _end(self, source: socket.socket, sink: socket.socket) -> None:
        """Note that one direction has ended cleanly; when the second has, close both sides."""
        with self._changed:
            if sink not in self._ended:
                self._ended.add(source)
                return
            self._ended.discard(sink)
            self._open -= {source, sink}
        source.close()
        sink.close()

    def _may_pass(self, source: socket.socket) -> bool:
        """Wait until a delay and a stall are over; ``False`` if the connection is to end instead, or has been reset."""
        with self._changed:
            if self._delay:
                self._changed.wait_for(
                    lambda: self._closing or self._mode is not _Mode.PASS, self._delay.total_seconds()
                )
            self._changed.wait_for(lambda: self._closing or self._mode is not _Mode.STALL)
            return not self._closing and self._mode is _Mode.PASS and source in self._open

    def _reset_all(self) -> None:
        with self._changed:
            ends = list(self._open)
            self._open.clear()
        for end in ends:
            self._reset(end)

    def _reset(self, end: socket.socket) -> None:
        """End a connection at once; the pump of its other direction wakes up with an error."""
        with self._changed:
            self._open.discard(end)
            self._ended.discard(end)
        with suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            end.shutdown(socket.SHUT_RD)
        end.close()
