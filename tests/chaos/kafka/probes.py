"""What a worker says of itself, asked twice a second."""

from __future__ import annotations

import threading
import time
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple, Self

EVERY = 0.5


class Answer(NamedTuple):
    """One answer to both probes."""

    at: float
    """Monotonic seconds."""
    ready: bool
    alive: bool
    body: str
    """Of the readiness probe."""


class ProbeWatch:
    """Asks from a thread of its own; begins when it is entered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="probe-watch", daemon=True)
        self.answers: list[Answer] = []
        """Only those that came: before the worker listens there are none."""

    def within(self, begin: float, end: float) -> list[Answer]:
        """Answers of that span of monotonic time."""
        return [answer for answer in list(self.answers) if begin <= answer.at <= end]

    def not_ready_after(self, begin: float, end: float) -> float | None:
        """Seconds from ``begin`` to the first "no" before ``end``."""
        return next((answer.at - begin for answer in self.within(begin, end) if not answer.ready), None)

    def ready_after(self, moment: float) -> float | None:
        """Seconds from then to the first "yes"."""
        return next((answer.at - moment for answer in list(self.answers) if answer.at >= moment and answer.ready), None)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(EVERY):
            at = time.monotonic()
            try:
                (ready, body), (alive, _) = self._ask("readiness"), self._ask("liveness")
            except (OSError, HTTPException):
                continue
            self.answers.append(Answer(at, ready, alive, body))

    def _ask(self, probe: str) -> tuple[bool, str]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", f"/{probe}/outbox")
            response = connection.getresponse()
            return response.status == 200, response.read().decode()
        finally:
            connection.close()
