"""A package of many modules is introduced by its docstring, which names each of them: nobody reads forty files to find one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import boxengine
from tests.unit.house.imports import modules

PACKAGE = Path(boxengine.__file__).parent
FEW = 5
"""Modules that one finds without a map."""


def parts(folder: Path) -> list[str]:
    """The modules and packages in it."""
    inside = [each for each in folder.iterdir() if each.suffix == ".py" or (each / "__init__.py").exists()]
    return sorted(each.stem for each in inside if each.stem != "__init__")


def of_many_modules() -> list[str]:
    """The packages that need a map, by folder."""
    folders = [file.parent for file in modules(PACKAGE).values() if file.name == "__init__.py"]
    # The root needs none: its docstring is for users, who import from it and need not know where things are.
    return sorted(str(each.relative_to(PACKAGE)) for each in folders if each != PACKAGE and len(parts(each)) > FEW)


@pytest.mark.parametrize("folder", of_many_modules())
def test_a_package_of_many_modules_names_each_of_them(folder: str) -> None:
    told = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
    assert [each for each in parts(PACKAGE / folder) if not re.search(rf"``{each}\b", told)] == []
