"""The table in this package's docstring is true: what it names exists, and nothing is left out of it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests import parity

HERE = Path(__file__)
SECTIONS = range(1, 10)


def written() -> list[str]:
    """The tests of this folder, this file's aside."""
    modules = [ast.parse(path.read_text()) for path in sorted(HERE.parent.glob("test_*.py")) if path != HERE]
    functions = [node for module in modules for node in module.body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if node.name.startswith("test_")]


def test_every_test_in_the_table_exists_and_every_test_is_in_the_table() -> None:
    named = re.findall(r"\btest_\w+", parity.__doc__ or "")
    assert sorted(named) == sorted(written())


def test_every_row_of_the_table_has_a_test_and_no_section_is_missing() -> None:
    table = (parity.__doc__ or "").partition("\n\n")[2]
    rows = re.split(r"^- ", table, flags=re.MULTILINE)[1:]
    assert [row.split(":")[0] for row in rows if "test_" not in row] == []
    assert [int(number) for number in re.findall(r"^\*\*(\d)\.", table, flags=re.MULTILINE)] == list(SECTIONS)
