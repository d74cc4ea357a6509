"""What all servers of this package have in common: one process, one port, one folder."""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from boxengine.embedded.process import ServerNotStarted, ServerProcess, free_port


class EmbeddedServer(ABC):
    """A private server on 127.0.0.1. As a context manager it starts on entry, and on exit stops and deletes its data."""

    _NAME: ClassVar[str]
    _STOP_SIGNAL: ClassVar[signal.Signals]
    _STOP_PATIENCE: ClassVar[timedelta]
    _RETRY_PATIENCE: ClassVar[timedelta]
    _PASSING: ClassVar[tuple[str, ...]]
    """Parts of complaints after which a start is tried again."""

    def __init__(self, folder: Path, *, port: int | None) -> None:
        self._folder = folder
        self._port = port
        self._process: ServerProcess | None = None

    @property
    def port(self) -> int:
        """TCP port, known after the first start."""
        if self._port is None:
            raise ServerNotStarted(f"{self._NAME} has not been started; its port is not chosen yet")
        return self._port

    @property
    def pid(self) -> int:
        """Id of the server's main process, known after the first start."""
        return self._running().pid

    def start(self) -> None:
        """Start the server, and return when it can be used. Harmless when it is running.

        :raises ServerNotStarted: the server did not start; the message ends with its log.
        :raises WheelMissing: the wheel is not installed.
        """
        if self._process is not None and self._process.running:
            return
        program = self._prepare()
        deadline = time.monotonic() + self._RETRY_PATIENCE.total_seconds()
        fixed_port = self._port
        while True:
            self._port = fixed_port or free_port()
            try:
                self._launch(program)
            except ServerNotStarted as error:
                passing = any(part in str(error) for part in self._PASSING)
                if not passing or time.monotonic() > deadline:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop cleanly: what is open is given up, and the data stays. Harmless when it is not running."""
        if self._process is not None:
            self._process.stop(self._STOP_SIGNAL, patience=self._STOP_PATIENCE)

    def kill(self) -> None:
        """Kill the server's main process with SIGKILL. What a durable server has committed is there after ``start``."""
        self._running().kill()

    def restart(self) -> None:
        """Stop and start on the same port with the same data."""
        self.stop()
        self.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT to freeze the server for a while."""
        self._running().send_signal(number)

    @abstractmethod
    def discard(self) -> None:
        """Stop and delete the data; the log stays."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()

    @abstractmethod
    def _prepare(self) -> Path:
        """Makes the folder ready; returns where the server's programs are."""

    @abstractmethod
    def _launch(self, program: Path) -> None:
        """One attempt to start on the port that was chosen; returns when the server is ready."""

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise ServerNotStarted(f"{self._NAME} has not been started")
        return self._process
