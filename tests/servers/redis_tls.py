"""The system's redis-server, which has TLS built in, on its own port."""

from __future__ import annotations

import signal
import socket
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from boxengine.embedded.process import ServerProcess, free_port
from tests.servers.certificates import Certificate


class TlsRedis:
    """A server on 127.0.0.1, TLS only, in memory only. As a context manager it starts on entry and stops on exit."""

    def __init__(self, folder: Path, *, program: str, certificate: Certificate, client_certificates: bool) -> None:
        """
        Args:
            client_certificates: whether a client must present a certificate from the same authority.
        """
        self.port = free_port()
        self._command = [
            program, "--port", "0", "--tls-port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder),
            "--tls-cert-file", str(certificate.certificate), "--tls-key-file", str(certificate.key),
            "--tls-ca-cert-file", str(certificate.authority),
            "--tls-auth-clients", "yes" if client_certificates else "no",
        ]  # fmt: skip
        self._log = folder / "redis.log"
        self._process: ServerProcess | None = None

    def __enter__(self) -> Self:
        self._process = process = ServerProcess(self._command, log_path=self._log)
        process.wait_until(self._answers, patience=timedelta(seconds=30))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGTERM, patience=timedelta(seconds=10))

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
