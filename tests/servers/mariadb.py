"""MariaDB for the session: given by the environment, or started from the system's ``mariadbd``."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

import pymysql

from boxengine.embedded.account import Account, private_folder, unprivileged_account
from boxengine.embedded.process import ServerNotStarted, ServerProcess, free_port
from tests.servers.offer import How, Offer
from tests.servers.programs import find_program


class MariaDBFromSystem:
    """The server installed on the system, with its own port and data."""

    def offer(self) -> Offer:
        """To be started, if its two programs are installed."""
        server, installer = find_program("mariadbd"), find_program("mariadb-install-db")
        if server is None or installer is None:
            return Offer("mariadb", How.ABSENT, "no mariadbd and mariadb-install-db on PATH; Debian: mariadb-server")
        return Offer("mariadb", How.STARTED, server)

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start it; its address is a SQLAlchemy URL without a database."""
        offer = self.offer()
        server = stack.enter_context(MariaDBServer(folder))
        return Offer(offer.server, offer.how, offer.detail, server.url())


class MariaDBServer:
    """A server that a test may stop, kill, freeze and start again, on the same port with the same data.

    As a context manager it starts on entry, and on exit stops and deletes its data.
    """

    def __init__(self, folder: Path) -> None:
        self._log_path = folder / "mariadb.log"
        self._account = unprivileged_account()
        self._data = private_folder(folder / "mariadb", account=self._account)
        self._temporary = private_folder(folder / "mariadb-tmp", account=self._account)
        self._port = free_port()
        self._process: ServerProcess | None = None

    def url(self, database: str = "", *, user: str = "root") -> str:
        """SQLAlchemy URL of a database, or of the server; driver PyMySQL."""
        address = f"mysql+pymysql://{user}@127.0.0.1:{self._port}"
        return f"{address}/{database}" if database else address

    def start(self) -> None:
        """Start, and return when it accepts connections.

        :raises ServerNotStarted: the message contains the end of the log.
        """
        if not any(self._data.iterdir()):
            _initialise(self._data, self._account)
        program = find_program("mariadbd")
        if program is None:
            raise ServerNotStarted("no mariadbd on PATH; Debian: mariadb-server")
        command = _command(program, self._data, self._temporary, self._port)
        self._process = ServerProcess(command, log_path=self._log_path, account=self._account)
        self._process.wait_until(lambda: _answers(self._port, self._data), patience=timedelta(seconds=60))

    def stop(self) -> None:
        """Shut down cleanly. Harmless when it is not running."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM, patience=timedelta(seconds=20))

    def crash(self) -> None:
        """End with SIGKILL; committed data is there after ``start``. Harmless when it is not running."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Keep connections open, but answer nothing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue where ``freeze`` stopped it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._discard()

    def _discard(self) -> None:
        self.stop()
        for folder in (self._data, self._temporary):
            shutil.rmtree(folder, ignore_errors=True)


def _command(program: str, data: Path, temporary: Path, port: int) -> list[str]:
    return [
        program,
        "--no-defaults",
        f"--datadir={data}",
        f"--tmpdir={temporary}",  # its own, because a starting server deletes the temporary tables of others in a shared one
        "--bind-address=127.0.0.1",
        f"--port={port}",
        "--socket=socket",  # relative to the data folder, because a socket's path is limited to 107 bytes
        f"--pid-file={data}/pid",
        "--skip-name-resolve",
        "--skip-log-bin",
        "--innodb-flush-log-at-trx-commit=2",  # a power cut may lose the last second; tests do not mind
        "--innodb-buffer-pool-size=128M",
    ]


def _initialise(data: Path, account: Account | None) -> None:
    made = subprocess.run(
        [
            str(find_program("mariadb-install-db")),
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd="/",
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=() if account else None,
    )
    if made.returncode != 0:
        raise ServerNotStarted(
            f"mariadb-install-db ended with exit code {made.returncode}:\n{made.stdout}{made.stderr}"
        )


def _answers(port: int, data: Path) -> bool:
    """Whether the server that answers on the port is the one with this data."""
    try:
        with (
            pymysql.connect(host="127.0.0.1", port=port, user="root", connect_timeout=1) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT @@datadir")
            row = cursor.fetchone()
            return row is not None and Path(row[0]) == data
    except pymysql.Error:
        return False
