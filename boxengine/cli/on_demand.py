"""Commands that are imported when they are asked for: a start of one command would otherwise pay for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group


class Commands(Mapping[str, Any]):
    """A group's commands by name, each made from its module at its first use."""

    def __init__(self, homes: Mapping[str, str]) -> None:
        """Args:
        homes: by a command's name the place of its function, or of its own ``typer.Typer``, as ``module:name``.
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
        module, _, attribute = self._homes[name].partition(":")
        found = getattr(import_module(module), attribute)
        around = typer.Typer()
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=name)
        else:
            around.command(name)(found)
        return get_group(around).commands[name]


def group_of(homes: Mapping[str, str]) -> type[TyperGroup]:
    """The class of a ``typer.Typer`` that has these commands (``cls``); see ``Commands``."""

    class OnDemand(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            # Nothing is added to it later, so that it need not be mutable.
            self.commands = Commands(homes)  # type: ignore[assignment]

    return OnDemand
