"""``docs/cli.md`` tells every command, option, default and help text that ``--help`` shows, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import typer

from boxengine.cli.main import cli

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
HEADER = ["| option | default | meaning |", "|---|---|---|"]


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The command and all below it, by their full names."""
    yield name, command
    for below, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {below}")


def rows(command: Any) -> list[str]:
    """The table of a command's arguments and options, as the page should have it."""
    shown = [each for each in command.params if not each.hidden]
    return [*HEADER, *(f"| {names(each)} | {default(each)} | {each.help} |" for each in shown)] if shown else []


def names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar or parameter.name.upper()}`"
    return ", ".join(f"`{name}`" for name in parameter.opts)


def default(parameter: Any) -> str:
    if parameter.required:
        return "needed"
    return "" if parameter.default in (None, False) else str(parameter.default)


def section(page: str, name: str) -> str:
    """What the page says about a command, up to the next heading."""
    found = re.search(rf"^##+ `{re.escape(name)}`$(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def options_table(told: str) -> list[str]:
    """The lines of the section's table of options."""
    _, header, rest = told.partition(HEADER[0])
    return [header, *takewhile(lambda line: line.startswith("|"), rest.splitlines()[1:])] if header else []


ALL = dict(commands(typer.main.get_command(cli), "boxengine"))


@pytest.mark.parametrize("name", ALL)
def test_the_page_says_of_a_command_what_its_help_says(name: str) -> None:
    command = ALL[name]
    told = section(PAGE.read_text(), name)
    assert told, f"docs/cli.md has no heading for {name}"
    wanted = rows(command)
    assert options_table(told) == wanted, "docs/cli.md should have:\n" + "\n".join(wanted)
    sentence = " ".join(command.help.partition("\n\n")[0].split())
    assert sentence in " ".join(told.split()), f"docs/cli.md should say of {name}: {sentence}"


def test_the_page_has_no_command_that_is_not_there() -> None:
    assert set(re.findall(r"^##+ `(boxengine.*)`$", PAGE.read_text(), re.MULTILINE)) <= set(ALL)
