"""Sends wake-ups from a thread of its own, so that no commit of the application waits for another server."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from boxengine.errors import Unavailable
from boxengine.ports import Signal

MOST = 1000
"""Signals that wait for a server that is slow; then only their boxes are remembered."""


class Announcer:
    """Takes signals from any thread at once, and sends those of many commits together.

    The thread lives only while there is something to send, and the interpreter waits for it before it exits: a program that
    ends right after its commit loses no hint.
    """

    def __init__(self, send: Callable[[list[Signal]], None]) -> None:
        self._send = send
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting: dict[Signal, None] = {}
        self._sending = False

    def tell(self, signals: list[Signal]) -> None:
        """Has the signals sent; returns without waiting for that."""
        if self._process != os.getpid():
            self._start_anew()  # threads do not live on in a forked process
        with self._lock:
            self._waiting.update(dict.fromkeys(signals))
            if len(self._waiting) > MOST:
                self._waiting = dict.fromkeys(Signal(signal.box_name, None) for signal in self._waiting)
            if self._sending:
                return
            self._sending = True
        threading.Thread(target=self._run, name="boxengine-announcer", daemon=False).start()

    def _run(self) -> None:
        while signals := self._next():
            with suppress(Unavailable):  # the hints are lost, which costs one poll interval
                self._send(signals)

    def _next(self) -> list[Signal]:
        with self._lock:
            signals, self._waiting = list(self._waiting), {}
            self._sending = bool(signals)
        return signals

    def _start_anew(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._waiting = {}
        self._sending = False
