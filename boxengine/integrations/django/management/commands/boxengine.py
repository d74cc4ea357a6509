"""``manage.py boxengine ...``: every command of boxengine, with the configuration of Django's settings."""

from __future__ import annotations

import os
import sys
from argparse import REMAINDER
from collections.abc import Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

_DJANGOS = ("--settings", "--pythonpath")


class Command(BaseCommand):
    """Passes its arguments to boxengine's command line."""

    help = (
        "boxengine's commands, with the configuration of settings.BOXENGINE: start, status, items, db upgrade, ... "
        "--database ALIAS before the command: on another database than BOXENGINE_DATABASE."
    )
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's way; the worker reports problems by itself

    def run_from_argv(self, argv: list[str]) -> None:
        """Passes on all that follows ``manage.py boxengine``, ``--help`` too, except ``--database ALIAS`` and Django's own."""
        from boxengine.cli.main import run  # noqa: PLC0415 - slow to import, and manage.py looks at every command
        from boxengine.integrations.django import configuration  # noqa: PLC0415

        alias, arguments = _database(list(_without_djangos(argv[2:])))
        alias = alias or configuration.main_alias()
        # Of another database, if this process has run a command there, or is one that a worker there has started.
        os.environ.update(configuration.environment(alias))
        with configuration.configuration_file(alias) as path:
            run(["--config", str(path), *arguments])

    def add_arguments(self, parser: CommandParser) -> None:
        """For ``call_command("boxengine", "status")``."""
        parser.add_argument("--database")
        parser.add_argument("arguments", nargs=REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's call
        """For ``call_command``, which returns unless the command fails, and may take the output."""
        database = ["--database", options["database"]] if options["database"] else []
        stdout, stderr = options.get("stdout") or sys.stdout, options.get("stderr") or sys.stderr
        try:
            with redirect_stdout(stdout), redirect_stderr(stderr):
                self.run_from_argv(["manage.py", "boxengine", *database, *options["arguments"]])
        except SystemExit as end:
            if end.code:
                said = f"boxengine {' '.join(options['arguments'])}: exit code {end.code}"
                raise CommandError(said, returncode=int(end.code)) from None


def _without_djangos(arguments: Iterable[str]) -> Iterator[str]:
    """The arguments without those that ``manage.py`` takes in any place, and has acted upon before it calls a command."""
    remaining = iter(arguments)
    for argument in remaining:
        if argument in _DJANGOS:
            next(remaining, None)
        elif argument.partition("=")[0] not in _DJANGOS:
            yield argument


def _database(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The alias of a ``--database`` before the command, if there is one, and the other arguments."""
    match arguments:
        case ["--database", alias, *rest]:
            pass
        case [first, *rest] if first.startswith("--database="):
            alias = first.partition("=")[2]
        case _:
            return None, arguments
    if alias not in connections:
        raise CommandError(f"--database: expected one of {', '.join(connections)}, got {alias!r}")
    return alias, rest
