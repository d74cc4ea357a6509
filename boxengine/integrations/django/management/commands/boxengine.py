"""``manage.py boxengine ...``: every command of boxengine, with the configuration of Django's settings."""

from __future__ import annotations

import os
from typing import Any

from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """Hands its arguments on."""

    help = "boxengine's commands, with the configuration of settings.BOXENGINE: start, status, items, db upgrade, ..."
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's way; the worker tells what is wrong by itself

    def run_from_argv(self, argv: list[str]) -> None:
        """Everything after ``manage.py boxengine`` is boxengine's, ``--help`` too."""
        from boxengine.cli.main import run  # noqa: PLC0415 - slow to import, and manage.py looks at every command
        from boxengine.integrations.django import configuration  # noqa: PLC0415

        os.environ.setdefault(configuration.DATABASE, configuration.database_url())
        with configuration.configuration_file() as path:
            run(["--config", str(path), *argv[2:]])

    def add_arguments(self, parser: CommandParser) -> None:
        """For ``call_command("boxengine", "status")``."""
        parser.add_argument("arguments", nargs="*")

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002 - Django's call
        """For ``call_command``."""
        self.run_from_argv(["manage.py", "boxengine", *options["arguments"]])
