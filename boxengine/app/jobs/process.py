"""What a child process of a job box does: loads the box's handlers, and runs one job after the other."""

from __future__ import annotations

import faulthandler
import logging
import pkgutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from boxengine.adapters.contracts import MsgpackArgs
from boxengine.adapters.processes.inside import WorkerLine, stand_by
from boxengine.domain.json_values import json_text
from boxengine.domain.outcome import Failure
from boxengine.engine.attempt import frames_of, reason_of
from boxengine.engine.jobs.forking import ending_children
from boxengine.engine.jobs.process_job import ProcessJob
from boxengine.errors import InvalidItem
from boxengine.ports.contracts import ArgsCodec
from boxengine.ports.job_processes import Answer, Begun, Call, Order, Raised, Refused, Returned

Handler = Callable[[ProcessJob[Any]], object]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process is told when it starts."""

    box: str
    handlers: Mapping[str, str]
    """Dotted paths by task; the contracts likewise."""
    contracts: Mapping[str, str]
    log_format: str | None
    """None: the worker does not configure how log lines look."""
    log_level: int


def run(connection: Connection[Any, Any], lifeline: int) -> None:
    """Runs jobs until the worker ends the process, or the worker itself is gone."""
    stand_by()
    if sys.stderr is not None:  # closed where the worker has closed it
        faulthandler.enable()
        # Not by Python code, which would not run while a handler's code in C hangs.
        faulthandler.register(signal.SIGUSR1)
    try:
        setup = connection.recv()
    except EOFError:
        return
    _log(setup)
    loaded = {task: _loaded(path, setup.contracts.get(task)) for task, path in setup.handlers.items()}
    line = WorkerLine(connection, lifeline)
    while True:
        order = line.order()
        line.tell(Begun())
        with _followed(setup, order):
            end = _run(setup.box, order, loaded[order.job.task], line.ask)
        line.rest()
        line.tell(end)


def _followed(setup: Setup, order: Order) -> AbstractContextManager[None]:
    """Has the handler's log lines say which job they are of, and its spans belong to the trace of the attempt."""
    job, headers = order.job, order.trace_context or order.job.trace_context or {}
    # Where logs are the application's own, it has imported this module if it wants tags in them.
    if not headers and setup.log_format is None and "boxengine.adapters.telemetry.tags" not in sys.modules:
        return nullcontext()
    from boxengine.adapters.telemetry.tags import following  # noqa: PLC0415 - takes as long as all other imports here

    return following(headers, box=setup.box, task=job.task, job=job.id, attempt=job.attempt)


def _run(
    box: str, order: Order, loaded: tuple[Handler, ArgsCodec | None] | Exception, ask: Callable[[Call], Answer]
) -> Returned | Refused | Raised:
    if isinstance(loaded, Exception):
        return _raised(loaded)
    handler, codec = loaded
    job: ProcessJob[Any] = ProcessJob(box, order.job, codec=codec, ask=ask)
    try:
        with ending_children():
            return _answer(handler(job))
    except BaseException as error:  # anything that users' code raises fails its attempt
        return _raised(error)
    finally:
        job.close()


def _raised(error: BaseException) -> Raised:
    return Raised(type(error).__name__, reason_of(error), frames_of(error))


def _answer(result: object) -> Returned | Refused | Raised:
    if isinstance(result, BaseException):
        return _raised(result)
    if isinstance(result, Failure):
        return Refused(result.reason)
    try:
        return Returned(json_text(result))
    except ValueError as error:
        raise InvalidItem(f"the handler's result: expected what JSON can hold: {error}") from None


def _loaded(path: str, contract: str | None) -> tuple[Handler, ArgsCodec | None] | Exception:
    """The handler and the codec of its arguments; or the error with which its attempts fail.

    The worker has checked the paths already. Without the settings' own loader and its imports, a process starts twice as fast.
    """
    try:
        found = pkgutil.resolve_name(path)
        handler = found().handle if isinstance(found, type) else found
        return handler, None if contract is None else MsgpackArgs(pkgutil.resolve_name(contract))
    except Exception as error:  # errors of users' modules and classes
        return error


def _log(setup: Setup) -> None:
    """Sets up logging as in the worker. Lines are written at once, because a killed process writes nothing later."""
    if setup.log_format is not None:
        from boxengine.adapters.telemetry import logs  # noqa: PLC0415 - not needed by applications with logs of their own

        format_: Any = setup.log_format
        logs.configure(format=format_, level=setup.log_level, stream=sys.stderr, process=True)
    else:
        logging.getLogger("boxengine").setLevel(setup.log_level)
