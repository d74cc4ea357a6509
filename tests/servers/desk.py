"""Where xdist's workers ask the controller for a server."""

from __future__ import annotations

import secrets
import threading
from multiprocessing.connection import Client, Connection, Listener

from tests.servers.offer import Offer
from tests.servers.session import ServerSession


class Desk:
    """Serves the workers of one session on a local socket, one thread per question."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._key = secrets.token_bytes(16)
        self._listener = Listener(authkey=self._key)
        self._thread = threading.Thread(target=self._serve, name="server desk", daemon=True)
        self._thread.start()

    @property
    def ticket(self) -> tuple[str, bytes]:
        """What a worker needs to ask questions."""
        return str(self._listener.address), self._key

    def close(self) -> None:
        """Stop serving."""
        with Client(self._listener.address, authkey=self._key) as connection:
            connection.send(None)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            connection = self._listener.accept()
            name = connection.recv()
            if name is None:
                connection.close()
                return
            threading.Thread(target=self._answer, args=(connection, name), name=f"desk: {name}", daemon=True).start()

    def _answer(self, connection: Connection, name: str) -> None:
        with connection:
            connection.send(self._session.obtain(name))


def ask(ticket: tuple[str, bytes], name: str) -> Offer:
    """Ask for a server, from a worker: returns it with its address, and waits while it is being started."""
    address, key = ticket
    with Client(address, authkey=key) as connection:
        connection.send(name)
        answer = connection.recv()
    assert isinstance(answer, Offer)
    return answer
