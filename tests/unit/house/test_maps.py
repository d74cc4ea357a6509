"""A package of many modules is introduced by its docstring, which names each of them: nobody reads forty files to find one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import boxengine
from tests.unit.house.imports import modules

PACKAGE = Path(boxengine.__file__).parent
ROOMS = ("engine", "domain", "ports", "settings", "app", "cli", "testing", "adapters/memory")
FEW = 5
"""Modules that one finds without a map."""


def parts(folder: Path) -> list[str]:
    """The modules and packages in it."""
    inside = [each for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]
    return sorted(each.stem for each in inside if each.stem != "__init__")


@pytest.mark.parametrize("room", ROOMS)
def test_a_package_of_many_modules_names_each_of_them(room: str) -> None:
    for file in modules(PACKAGE / room).values():
        if file.name == "__init__.py" and len(parts(file.parent)) > FEW:
            told = ast.get_docstring(ast.parse(file.read_text())) or ""
            unnamed = [each for each in parts(file.parent) if not re.search(rf"``{each}\b", told)]
            assert unnamed == [], file
