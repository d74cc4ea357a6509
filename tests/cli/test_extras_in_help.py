"""Help texts are marked up; the brackets of an extra must not be taken for a mark."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from boxengine.cli.main import cli


@pytest.mark.parametrize(
    ("command", "extra"), [("demo", "embedded,web"), ("demo", "embedded"), ("servers", "embedded"), ("web", "web")]
)
def test_the_help_names_the_extra_that_a_command_needs(command: str, extra: str) -> None:
    told = CliRunner().invoke(cli, [command, "--help"], terminal_width=200).output
    assert f'pip install "boxengine[{extra}]"' in " ".join(told.split())
