"""A server as a child process: started, awaited, stopped, and never left behind."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from boxengine.embedded.account import Account
from boxengine.errors import BoxError

_GLANCE = 0.02  # seconds between two checks of a server that is starting
_LOG_TAIL = 2_000  # bytes of a log that fit into an error message


class ServerNotStarted(BoxError):
    """A server ended or stayed silent while it was starting; the message ends with its log."""


class ServerProcess:
    """One running server.

    It has its own session, so that Ctrl-C reaches only the caller, who then stops the server cleanly.
    If the caller dies without stopping it, a guard ends the server: a shell blocked on a pipe that only
    the caller holds open. (The kernel's parent-death signal does not work here: it fires when the
    starting *thread* ends, and is lost when the user is switched.)

    :param command: program and arguments.
    :param log_path: the server's standard output and error are appended here.
    :param account: run under this account instead of the caller's.
    :param last_signal: the signal that the guard sends; SIGKILL suits a server without children.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        account: Account | None = None,
        env: Mapping[str, str] | None = None,
        last_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        self._log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log_path.stat().st_size if log_path.exists() else 0
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",  # the account might not be allowed to enter the caller's
                env=dict(os.environ if env is None else env),
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=() if account else None,
            )
        self._name = Path(command[0]).name
        self._guard = _guard(self._process.pid, last_signal)

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server has not ended yet."""
        return self._process.poll() is None

    def log(self) -> str:
        """What the server has written since its start; at most the last 2,000 bytes."""
        size = self._log_path.stat().st_size
        with self._log_path.open("rb") as log:
            log.seek(max(self._log_start, size - _LOG_TAIL))
            return log.read().decode(errors="replace")

    def wait_until(self, ready: Callable[[], bool], *, patience: timedelta) -> None:
        """Call ``ready`` repeatedly while the server runs, and return when it returns true.

        :raises ServerNotStarted: the server ended, or was not ready within ``patience``; it is not running any more.
        """
        deadline = time.monotonic() + patience.total_seconds()
        while not ready():
            if self._ended_within(_GLANCE):
                self._dismiss_guard()
                code = self._process.returncode
                raise ServerNotStarted(f"{self._name} ended with exit code {code} while starting:\n{self.log()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerNotStarted(f"{self._name} was not ready after {patience}:\n{self.log()}")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal (SIGSTOP, SIGCONT, SIGHUP); nothing happens if the server has ended."""
        self._process.send_signal(number)

    def stop(self, number: signal.Signals, *, patience: timedelta) -> None:
        """Ask the server to end, and kill it when ``patience`` is over. Harmless when it has ended."""
        self._process.send_signal(number)
        if self._ended_within(patience.total_seconds()):
            self._dismiss_guard()
        else:
            self.kill()

    def kill(self) -> None:
        """End the server with SIGKILL, as a crash would. Harmless when it has ended."""
        self._process.kill()
        self._process.wait()
        self._dismiss_guard()

    def _ended_within(self, seconds: float) -> bool:
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _dismiss_guard(self) -> None:
        self._guard.kill()
        self._guard.communicate()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on.

    It is below the range that the kernel uses for outgoing connections (32768 and up). Otherwise another
    connection could take the port of a server that is down for a moment, or a client that keeps
    trying could connect to itself.
    """
    choice = random.SystemRandom()
    while True:
        port = choice.randrange(10_000, 32_000)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Whether nobody listens on this TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _guard(pid: int, last_signal: signal.Signals) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -s "$0" "$1"', last_signal.name.removeprefix("SIG"), str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
