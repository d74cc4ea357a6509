"""Commands of Python that begin at once: a process that has imported the packages boxengine uses forks for each.

Importing them takes up to 1.5 s of a ``manage.py``, and the tests run hundreds. Boxengine itself is imported by the command, so
that one which forgets an import fails here as it would for a user. Not for tests of what a process imports, or of its memory.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

PREPARED = [
    "annotated_types",
    "django.contrib.admin",
    "django.core.management.commands.makemigrations",
    "django.core.management.commands.migrate",
    "django.core.management.commands.shell",
    "django.core.management.commands.test",
    "django.db.backends.mysql",
    "django.db.backends.postgresql.base",
    "django.forms",
    "django.template.loader",
    "django.test",
    "django.views.defaults",
    "opentelemetry.propagate",
    "psycopg",
    "pydantic.dataclasses",
    "pydantic.json_schema",
    "pydantic.type_adapter",
    "pymysql",
    "redis",
    "rich.markdown",
    "rich.traceback",
    "shellingham",
    "sqlalchemy.dialects.mysql.pymysql",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.ext.compiler",
    "sqlalchemy.orm",
    "typer.completion",
    "typer.main",
    "yaml",
]


def _told(env: Mapping[str, str]) -> dict[str, str]:
    """What Python reads of an environment as it starts, and a fork not any more."""
    return {k: v for k, v in env.items() if k.startswith(("PYTHON", "LANG", "LC_")) and k != "PYTHONPATH"}


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


class Started:
    """A command in a fork of the prepared process, with what the tests need of ``subprocess.Popen``."""

    def __init__(self, command: Sequence[str], answers: socket.socket) -> None:
        self._command = command
        # Unbuffered, so that select() knows of whatever has not been read.
        self._answers = answers.makefile("rb", buffering=0)
        answers.close()
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout=0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not ended in time.
        """
        if self.returncode is None:
            if timeout is not None and not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._command, timeout)
            self.returncode = int(self._answers.readline())
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[bytes] | Started
_NOTHING = os.open(os.devnull, os.O_RDONLY)


def start(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int = _NOTHING,
    stdout: int = 1,
    stderr: int = 2,
    own_group: bool = False,
) -> Process:
    """Starts ``-m module arguments...`` or ``script.py arguments...`` in a fork of the prepared process, and leaves it running.

    Where the environment tells Python something else, a process of its own runs the command.

    Args:
        command: what stands after ``python``.
        stdin: a descriptor, as the other two.
        own_group: whether it leads a process group, as a shell's commands do.
    """
    if _told(env) != _told(ENVIRONMENT):
        program = [sys.executable, *command]
        group = 0 if own_group else None
        return subprocess.Popen(
            program, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, process_group=group
        )
    here, there = socket.socketpair()
    with there:
        what = {"command": [*command], "cwd": str(cwd), "env": {**env}, "own_group": own_group}
        _prepared().ask(what, [there.fileno(), stdin, stdout, stderr])
    return Started(command, here)


def run(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes = b"", timeout: float = 60
) -> subprocess.CompletedProcess[bytes]:
    """As ``start``, with captured output; returns once the command has ended.

    Args:
        timeout: seconds, after which the command is killed.

    Raises:
        subprocess.TimeoutExpired: the command did not end in time.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        given, out, err = (file.fileno() for file in files)
        process = start(command, cwd=cwd, env=env, stdin=given, stdout=out, stderr=err)
        try:
            code = process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(command, code, *(_content(file) for file in files[1:]))


def _content(file: Any) -> bytes:
    file.seek(0)
    return bytes(file.read())


class _Prepared:
    """The process that forks. It ends with this one, even a killed one, which holds the other end of its socket."""

    def __init__(self) -> None:
        self._socket, there = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        with there:
            program = [sys.executable, "-P", __file__, str(there.fileno())]
            self._process = subprocess.Popen(program, pass_fds=[there.fileno()], env=ENVIRONMENT)
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def ask(self, what: dict[str, Any], descriptors: Sequence[int]) -> None:
        body = json.dumps(what).encode()
        with self._one_at_a_time:
            socket.send_fds(self._socket, [len(body).to_bytes(4)], descriptors)
            self._socket.sendall(body)


@cache
def _prepared() -> _Prepared:
    return _Prepared()


# ── in the process that forks ────────────────────────────────────────────────────────────────────────


def _next_command(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """In a fork: the command to run, with its three standard streams. None: nobody is going to ask any more."""
    while True:
        length, descriptors, _, _ = socket.recv_fds(requests, 4, 4)
        if not length:
            return None
        body = requests.recv(int.from_bytes(length), socket.MSG_WAITALL)
        if os.fork() == 0:
            requests.close()
            what, (answers, *streams) = json.loads(body), descriptors
            if (pid := os.fork()) == 0:
                os.close(answers)
                return what, streams
            for descriptor in streams:
                os.close(descriptor)  # whoever reads a pipe waits for its last writer
            if what["own_group"]:
                os.setpgid(pid, pid)
            os.write(answers, f"{pid}\n".encode())
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            if ended is not None:
                code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
                os.write(answers, f"{code}\n".encode())
            os.read(answers, 1)  # until whoever asked has read it, the number belongs to no other process
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):  # all have been waited for
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(command: list[str], cwd: str, env: dict[str, str], streams: list[int]) -> None:
    """Runs the command as the program of this process."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def _serve() -> None:
    for name in PREPARED:
        import_module(name)
    gc.freeze()  # a fork would look through everything above again and again, and copy its pages for that
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        found = _next_command(requests)
    if found:
        _become(found[0]["command"], found[0]["cwd"], found[0]["env"], found[1])


if __name__ == "__main__":
    _serve()
