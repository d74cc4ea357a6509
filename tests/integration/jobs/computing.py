"""Handlers for processes of their own. Each tells its pid by a checkpoint, which is written at once."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from opentelemetry import propagate

from boxengine import Contract, Failure, Int64, ProcessJob


@dataclass(frozen=True, kw_only=True)
class Picture(Contract):
    contract_id: ClassVar[int] = 11
    width: Int64


def tell_pids(job: ProcessJob[Any]) -> None:
    """With a program that the handler has started."""
    program = subprocess.Popen(["sleep", "600"])
    job.checkpoint({"pid": os.getpid(), "program": program.pid})


def who(job: ProcessJob[Any]) -> dict[str, int]:
    return {"pid": os.getpid(), "parent": os.getppid()}


def refusing(job: ProcessJob[Any]) -> object:
    return Failure("no good") if job.args["what"] == "failure" else ValueError("no good")


def in_two_attempts(job: ProcessJob[Any]) -> dict[str, Any]:
    if job.state is None:
        job.checkpoint("half")
        raise ValueError("in the middle")
    if job.attempt == 2:
        job.retry(in_=0)
    job.progress(done=job.attempt)
    return {"state": job.state, "attempt": job.attempt, "id": job.id, "key": job.idempotency_key}


def until_cancelled(job: ProcessJob[Any]) -> None:
    job.checkpoint({"pid": os.getpid()})
    while not job.cancelled:
        sum(range(1000))


def fork(job: ProcessJob[Any]) -> str:
    """Forks a process that returns from the handler as well, and first."""
    child = os.fork()
    if not child:
        return "child"
    os.waitpid(child, 0)
    return "parent"


def pools(job: ProcessJob[Any]) -> None:
    """At its end a pool waits for its processes, as often as not for one that only SIGTERM can end."""
    for number in range(20):
        with multiprocessing.get_context("fork").Pool(2) as processes:
            processes.map(abs, [-1, -2])
        job.checkpoint(number)


def impatient(job: ProcessJob[Any]) -> bool:
    """Waits for no checkpoint longer than until an alarm, and goes on."""

    def ring(_number: int, _frame: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, ring)
    with suppress(TimeoutError):
        job.checkpoint("half")
    return job.cancelled


def hold_the_interpreter(job: ProcessJob[Any]) -> None:
    """A computation in C that lets no other thread run, and does not end."""
    tell_pids(job)
    re.match(r"(a+)+$", "a" * 80 + "b")


def hold_the_interpreter_until_told(job: ProcessJob[Any]) -> None:
    """Code in C that lets no other thread run until somebody writes to a pipe."""
    pipe = os.open(job.args["until"], os.O_RDONLY)
    job.checkpoint({"pid": os.getpid()})
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)


def die(job: ProcessJob[Any]) -> None:
    tell_pids(job)
    match job.args["how"]:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)


def write(job: ProcessJob[Any]) -> None:
    job.session.execute("INSERT")


class Measure:
    """A handler with a method, made once in each process."""

    def handle(self, job: ProcessJob[Picture]) -> int:
        return job.args.width * 2


def no_json(job: ProcessJob[Any]) -> object:
    return object()


def traced(job: object) -> dict[str, str]:
    """Returns the headers that a request of the handler would carry. For threads, too."""
    logging.getLogger("shop").warning("at work")
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
