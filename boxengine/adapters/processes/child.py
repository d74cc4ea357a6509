"""One process that runs handlers, as the worker sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import Connection
from typing import Any

from boxengine.ports.job_processes import FromProcess, ProcessGone, ToProcess

BOOT = (
    "import sys; from multiprocessing.connection import Connection; worker = Connection({worker}); sys.path[:] = worker.recv(); "
    "from {module} import run; run(worker, {lifeline})"
)
DEATH = 5.0
"""Seconds within which a process that was killed, or has closed its connection, is gone, unless it hangs."""


@dataclass(frozen=True, slots=True)
class Start:
    """How to start the processes of a box."""

    module: str
    """Whose ``run(connection, lifeline)`` runs in the process."""
    name: str
    """For lists of processes."""
    path: list[str]
    """``sys.path``."""
    setup: Any
    """The first message for ``run``."""


class Child:
    """A ``HandlerProcess``, begun by its constructor. It is idle until it gets an order."""

    def __init__(self, start: Start) -> None:
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    # Embedded interpreters set it: their sys.executable may be a web server.
                    spawn.get_executable(),
                    "-c",
                    BOOT.format(worker=theirs.fileno(), lifeline=lifeline, module=start.module),
                    f"boxengine-jobs-of-{start.name}",
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        self._lock = threading.Lock()
        self._killed = False
        self._how: str | None = None
        with suppress(OSError):  # it has died already: the first order meets that
            self._connection.send(start.path)
            self._connection.send(start.setup)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take an order."""
        return not self._killed and self._process.poll() is None

    def send(self, message: ToProcess) -> None:
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._gone() from error

    def receive(self, within: float) -> FromProcess | None:
        try:
            if not self._connection.poll(within):
                if self._process.poll() is None:
                    return None
                # What it has started may hold its end of the connection open.
                raise self._gone()
            message: FromProcess = self._connection.recv()
        except (EOFError, OSError) as error:
            raise self._gone() from error
        return message

    def kill(self) -> None:
        with self._lock:
            if not self._killed:
                self._killed = True
                # A process that ended by itself keeps its status. Programs that it started are still here.
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def _gone(self) -> ProcessGone:
        # The connection ends a moment before the process does, whose status says why.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(DEATH)
        return ProcessGone(self.end())

    def end(self) -> str:
        """Kills what is left of the process, and closes the connection. Returns how it ended: ``was killed by SIGSEGV``."""
        self.kill()
        if self._how is None:
            try:
                self._how = _how(self._process.pid, self._process.wait(DEATH))
            except subprocess.TimeoutExpired:
                self._how = f"(pid {self._process.pid}) does not end"
            self._connection.close()
            os.close(self._lifeline)
        return self._how


def _how(pid: int, status: int) -> str:
    if status >= 0:
        return f"(pid {pid}) ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    short = " (memory may have been short)" if name == "SIGKILL" else ""
    return f"(pid {pid}) was killed by {name}{short}"
