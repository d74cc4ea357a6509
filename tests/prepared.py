"""Commands of Python that begin at once: a process that has imported the packages boxengine uses forks for each.

Importing them takes up to 1.5 s of a ``manage.py``, and the tests run hundreds. Boxengine itself is imported by the command, so
that one which forgets an import fails here as it would for a user. Not for commands that live on: use ``subprocess.Popen``.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
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


def run(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: bytes = b"", timeout: float = 60
) -> subprocess.CompletedProcess[bytes]:
    """Runs ``-m module arguments...`` or ``script.py arguments...`` in a fork of the prepared process, with captured output.

    Where the environment tells Python something else, a process of its own runs the command.

    Args:
        command: what stands after ``python``.
        timeout: seconds, after which the command is killed.

    Raises:
        subprocess.TimeoutExpired: the command did not end in time.
    """
    if _told(env) != _told(ENVIRONMENT):
        program = [sys.executable, *command]
        return subprocess.run(program, cwd=cwd, env=env, input=stdin, timeout=timeout, capture_output=True, check=False)
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        here, there = socket.socketpair()
        with here:
            with there:
                _prepared().ask(
                    {"command": [*command], "cwd": str(cwd), "env": {**env}},
                    [there.fileno(), *(file.fileno() for file in files)],
                )
            here.settimeout(timeout)
            answers = stack.enter_context(here.makefile())
            pid = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout) from None
        out, err = (_content(file) for file in files[1:])
        return subprocess.CompletedProcess(command, code, out, err)


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
            answers, *streams = descriptors
            if (pid := os.fork()) == 0:
                os.close(answers)
                return json.loads(body), streams
            os.write(answers, f"{pid}\n".encode())
            _, status = os.waitpid(pid, 0)
            os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
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
