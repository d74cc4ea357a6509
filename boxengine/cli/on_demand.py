"""Commands that are imported when they are asked for: a start of one command would otherwise pay for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from boxengine.app.running.garbage import put_off

_UsageError: Any = typer.BadParameter.__base__
"""Of click, which some versions of typer contain and others import."""


class Home(NamedTuple):
    """Where a command is, and what the list of commands says of it."""

    place: str
    """Of its function, or of its own ``typer.Typer``, as ``module:name``."""
    summary: str
    """The first paragraph of its help text, so that the list needs no import of any command."""


class Commands(Mapping[str, Any]):
    """A group's commands by name, each made from its module at its first use."""

    def __init__(self, homes: Mapping[str, Home]) -> None:
        """Args:
        homes: by a command's name.
        """
        self._homes = homes
        self._made = cache(self._make)

    def __getitem__(self, name: str) -> Any:
        return self._made(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def _make(self, name: str) -> Any:
        module, _, attribute = self._homes[name].place.partition(":")
        with put_off():
            found = getattr(import_module(module), attribute)
        around = typer.Typer()
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=name)
        else:
            around.command(name)(found)
        return _reflowed(get_group(around).commands[name])


def _reflowed(command: Any) -> Any:
    """The command with each paragraph of its help on one line: a line break in a docstring is not one on the terminal."""
    if command.help:
        command.help = "\n\n".join(" ".join(part.split()) for part in command.help.split("\n\n"))
    below = getattr(command, "commands", {})
    # Those that are imported on demand are reflowed then.
    for each in () if isinstance(below, Commands) else below.values():
        _reflowed(each)
    return command


def group_of(homes: Mapping[str, Home]) -> type[TyperGroup]:
    """The class of a ``typer.Typer`` that has these commands (``cls``); see ``Commands``."""

    class OnDemand(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            # Nothing is added to it later, so that it need not be mutable.
            self.commands = Commands(homes)  # type: ignore[assignment]

        def invoke(self, ctx: Any) -> Any:
            try:
                return super().invoke(ctx)
            except _UsageError as error:
                option = getattr(error, "option_name", None)
                if any(option in parameter.opts for parameter in self.params):
                    whole = f"{ctx.command_path} {option} ... {ctx.invoked_subcommand}"
                    error.message = f"{option} stands before the command, as in: {whole}"
                raise

        def format_help(self, *arguments: Any) -> None:
            listed = copy(self)
            listed.commands = {name: TyperCommand(name, help=home.summary) for name, home in homes.items()}
            super(OnDemand, listed).format_help(*arguments)

    return OnDemand
