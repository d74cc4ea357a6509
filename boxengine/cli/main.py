"""``boxengine``: the commands, the global options, and the exit codes.

0: fine. 1: failed. 2: bad usage or configuration. Errors are one line each on standard error; a traceback only with
``--debug``.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from boxengine.cli.commands import COMMANDS
from boxengine.cli.context import Globals
from boxengine.cli.on_demand import group_of
from boxengine.domain.legible import escaped
from boxengine.domain.masking import masked_text
from boxengine.errors import BadUsage, BoxError, ConfigurationError, PortTaken, UnknownBox
from boxengine.version import __version__

LOG_FORMATS = ("auto", "json", "text")
LOG_LEVELS = ("debug", "info", "warning", "error")

cli = typer.Typer(
    name="boxengine",
    cls=group_of(COMMANDS),
    help="The transactional outbox and inbox: committed rows reach Kafka, a webhook or your code.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        sys.stdout.write(f"boxengine {__version__}\n")
        raise typer.Exit


def _one_of(words: Sequence[str]) -> Callable[[str | None], str | None]:
    def check(given: str | None) -> str | None:
        if given is not None and given.lower() not in words:
            raise typer.BadParameter(f"expected one of {', '.join(words)}")
        return given and given.lower()

    return check


@cli.callback()
def options(
    context: typer.Context,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", help="Configuration file; repeat it to merge several, the last wins."),
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment section of the file.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: FBT002 - typer's way
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", callback=_one_of(LOG_FORMATS), help="auto, json or text; else as configured."),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            "--log-level", callback=_one_of(LOG_LEVELS), help="debug, info, warning or error; else as configured."
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001, FBT002 - handled by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The transactional outbox and inbox: committed rows reach Kafka, a webhook or your code."""
    context.obj = Globals(tuple(config or ()), env, debug, log_format, log_level)


def run(arguments: list[str] | None = None) -> None:
    """Runs a command and exits with its code.

    Args:
        arguments: None: those of this process, which ends with the command.
    """
    open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error does with what its encoding lacks
    if arguments is None:
        arguments = sys.argv[1:]
        atexit.register(gc.freeze)  # otherwise Python searches all modules for garbage before it forgets them
    try:
        cli(args=arguments)
    except (ConfigurationError, UnknownBox, BadUsage, PortTaken) as error:
        _complain(error, 2)
    except Exception as error:  # an unexpected error is one line too, with a traceback only if --debug asks for it
        if "--debug" in arguments:
            sys.stderr.write(masked_text("".join(traceback.format_exception(error))))
            sys.exit(1)
        _complain(error if isinstance(error, BoxError) else f"{type(error).__name__}: {error} (--debug tells where)", 1)


def open_closed_streams() -> None:
    """Opens the null device in place of a standard input, output or error that is closed (`2>&-`).

    Otherwise the next connection would get its number, and code that writes to standard error would write into that connection.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The system assigns the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _complain(error: BoxError | str, code: int) -> NoReturn:
    for line in escaped(masked_text(str(error))).splitlines():
        sys.stderr.write(f"boxengine: {line}\n")
    sys.exit(code)
