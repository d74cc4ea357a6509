"""MariaDB for the session: given, or started from the system's ``mariadbd``."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pymysql

from boxengine.embedded.account import Account, private_folder, unprivileged_account
from boxengine.embedded.process import ServerNotStarted, ServerProcess, free_port
from tests.servers.offer import How, Offer
from tests.servers.programs import find_program


class MariaDBFromSystem:
    """The server that the system has installed, on a port and data of its own."""

    def offer(self) -> Offer:
        """To be started, if its two programs are there."""
        server, installer = find_program("mariadbd"), find_program("mariadb-install-db")
        if server is None or installer is None:
            return Offer("mariadb", How.ABSENT, "no mariadbd and mariadb-install-db on PATH; Debian: mariadb-server")
        return Offer("mariadb", How.STARTED, server)

    def start(self, folder: Path, stack: ExitStack) -> Offer:
        """Start it; its address is a SQLAlchemy URL without database."""
        offer = self.offer()
        account = unprivileged_account()
        data = private_folder(folder / "mariadb", account=account)
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        _initialise(data, account)
        port = free_port()
        process = ServerProcess(_command(offer.detail, data, port), log_path=folder / "mariadb.log", account=account)
        stack.callback(process.stop, signal.SIGTERM, patience=timedelta(seconds=20))
        process.wait_until(lambda: _answers(port, data), patience=timedelta(seconds=60))
        return Offer(offer.server, offer.how, offer.detail, f"mysql+pymysql://root@127.0.0.1:{port}")


def _command(program: str, data: Path, port: int) -> list[str]:
    return [
        program,
        "--no-defaults",
        f"--datadir={data}",
        "--bind-address=127.0.0.1",
        f"--port={port}",
        "--socket=socket",  # relative to the data folder, for the path of a socket is limited to 107 bytes
        f"--pid-file={data}/pid",
        "--skip-name-resolve",
        "--skip-log-bin",
        "--innodb-flush-log-at-trx-commit=2",  # a power cut may take the last second; tests do not mind
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
    """Whether the server on the port is the one with this data."""
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
