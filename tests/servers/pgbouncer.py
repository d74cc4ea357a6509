"""PgBouncer in front of a PostgreSQL, one for each test."""

from __future__ import annotations

import shutil
import socket
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url

from boxengine.embedded.account import private_folder, unprivileged_account
from boxengine.embedded.process import ServerProcess, free_port
from tests.servers.certificates import Certificate


class PgBouncer:
    """A PgBouncer on 127.0.0.1, for every database of the server behind it; users need no password.

    As a context manager it starts on entry and stops on exit.
    """

    def __init__(
        self,
        folder: Path,
        *,
        program: str,
        server_url: str,
        pool_mode: str = "transaction",
        pool_size: int = 20,
        certificate: Certificate | None = None,
    ) -> None:
        """
        Args:
            server_url: SQLAlchemy URL of the PostgreSQL behind it.
            pool_mode: transaction or session.
            pool_size: connections to the server for each database and user.
            certificate: presented to clients, which must use TLS; None: without TLS.
        """
        self._server = make_url(server_url)
        self._account = unprivileged_account()
        self._folder = private_folder(folder, account=self._account)
        self._program = program
        self._port = free_port()
        self._log = folder.parent / f"{folder.name}.log"
        settings = {
            "listen_addr": "127.0.0.1",
            "listen_port": self._port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self._write("users.txt", f'"{self._server.username}" ""\n'),
            "pool_mode": pool_mode,
            "default_pool_size": pool_size,
            "max_client_conn": 200,
            "admin_users": self._server.username,
        }
        if certificate is not None:
            settings |= {
                "client_tls_sslmode": "require",
                "client_tls_key_file": self._write("key.pem", certificate.key.read_text()),
                "client_tls_cert_file": self._write("certificate.pem", certificate.certificate.read_text()),
            }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        server = f"* = host={self._server.host} port={self._server.port}"
        self._config = self._write("pgbouncer.ini", "\n".join(["[databases]", server, "[pgbouncer]", *lines, ""]))
        self._process: ServerProcess | None = None

    def url(self, url: str, *, host: str = "127.0.0.1") -> str:
        """``url``, the URL of one of the server's databases, changed to go through this PgBouncer."""
        return make_url(url).set(host=host, port=self._port).render_as_string(hide_password=False)

    def __enter__(self) -> Self:
        command = [self._program, str(self._config)]
        self._process = process = ServerProcess(command, log_path=self._log, account=self._account)
        process.wait_until(self._answers, patience=timedelta(seconds=30))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            # It keeps nothing, and heeds no SIGQUIT where whoever started the tests ignores it, as a shell's background does.
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        path.chmod(0o644)
        return path

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
