"""``boxengine``: the commands, the global options, and the exit codes.

0: fine. 1: failed. 2: bad usage or configuration. Errors are one line each on standard error; a traceback only with
``--debug``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from boxengine.cli import cleanup, config, consume, create, db, demo, init, pausing, start, status
from boxengine.cli.context import Globals
from boxengine.errors import BoxError, ConfigurationError, UnknownBox

cli = typer.Typer(
    name="boxengine",
    help="The transactional outbox and inbox: committed rows reach Kafka, a webhook or your code.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
cli.command("start")(start.start)
cli.command("consume")(consume.consume)
cli.command("create")(create.create)
cli.command("status")(status.status)
cli.command("pause")(pausing.pause)
cli.command("resume")(pausing.resume)
cli.command("cleanup")(cleanup.cleanup)
cli.command("init")(init.init)
cli.command("demo")(demo.demo)
cli.add_typer(db.cli, name="db")
cli.add_typer(config.cli, name="config")


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        from boxengine import __version__  # noqa: PLC0415 - imports everything

        sys.stdout.write(f"boxengine {__version__}\n")
        raise typer.Exit


@cli.callback()
def options(
    context: typer.Context,
    config: Annotated[
        list[Path] | None,
        typer.Option("--config", help="Configuration file; repeat it to merge several, the last wins."),
    ] = None,
    env: Annotated[str | None, typer.Option("--env", help="Environment section of the file.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,  # noqa: FBT002 - typer's way
    log_format: Annotated[str, typer.Option("--log-format", help="auto, json or human.")] = "auto",
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    version: Annotated[  # noqa: ARG001, FBT002 - handled by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The transactional outbox and inbox: committed rows reach Kafka, a webhook or your code."""
    context.obj = Globals(tuple(config or ()), env, debug, log_format, log_level.upper())


def run(arguments: list[str] | None = None) -> None:
    """Runs a command and exits with its code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        cli(args=arguments)
    except (ConfigurationError, UnknownBox) as error:
        _complain(error, 2)
    except BoxError as error:
        if "--debug" in arguments:
            raise
        _complain(error, 1)


def _complain(error: BoxError, code: int) -> NoReturn:
    for line in str(error).splitlines():
        sys.stderr.write(f"boxengine: {line}\n")
    sys.exit(code)
