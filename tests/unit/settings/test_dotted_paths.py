from __future__ import annotations

import sys
from pathlib import Path

import pytest

from boxengine.settings import dotted_paths


@pytest.mark.parametrize("path", ["tests.unit.settings.shop.Log", "tests.unit.settings.shop:Log"])
def test_a_dotted_path_leads_to_a_class(path: str) -> None:
    assert dotted_paths.load_object(path).__name__ == "Log"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("no_such_shop.Log", "there is no such module"),
        ("tests.unit.settings.shop.Lgo", "has no 'Lgo'"),
        ("tests.unit.settings.no_shop.Log", "has no 'no_shop'"),
        ("tests.unit.settings.shop.Log.inner", "has no 'inner'"),
        ("tests.unit.settings.shop.broken.Log", r"raised ZeroDivisionError: on purpose \(.*broken.py:3\)"),
        ("tests.unit.settings.shop.program.Log", r"raised SystemExit: 0 \(.*program.py:3\)"),
        ("tests.unit.settings.shop.lacking.Log", "No module named 'no_such_distribution'"),
        ("not a path", "not a dotted path"),
        ("shop..Log", "not a dotted path"),
    ],
)
def test_a_dotted_path_that_leads_nowhere_says_where_it_ended(path: str, reason: str) -> None:
    with pytest.raises(dotted_paths.CannotImport, match=reason):
        dotted_paths.load_object(path)


def test_a_class_without_its_module_is_told_how_it_is_written() -> None:
    with pytest.raises(
        dotted_paths.CannotImport, match=r"a class needs its module in front, as in package\.module\.Announce"
    ):
        dotted_paths.import_module("Announce")


def test_a_module_that_is_not_there_is_looked_for_in_the_folder_of_the_start() -> None:
    with pytest.raises(
        dotted_paths.CannotImport, match=r"on the path; start in the folder that holds nowhere, or .* PYTHONPATH$"
    ):
        dotted_paths.load_object("nowhere.at_all")


def test_a_folder_that_was_taken_for_the_module_in_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grocer").mkdir()
    (tmp_path / "grocer" / "grocer.py").write_text("class Announce: ...")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(dotted_paths.CannotImport) as refusal:
        dotted_paths.load_object("grocer.Announce")
    folder = tmp_path / "grocer"
    assert str(refusal.value) == (
        f"cannot import 'grocer.Announce': 'grocer', the folder {folder} without __init__.py, has no 'Announce'"
    )


def test_a_part_of_a_module_is_not_looked_for_as_if_it_were_a_package() -> None:
    with pytest.raises(dotted_paths.CannotImport, match=r"module 'json\.tool' has no 'py'$"):
        dotted_paths.import_module("json.tool.py")


def test_a_module_that_fails_because_it_is_the_program_itself_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "own_program.py"
    program.write_text("raise ValueError('this table is defined already')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(dotted_paths.CannotImport, match=r"is defined already \(.*\)$"):
        dotted_paths.import_module("own_program")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(program), raising=False)
    with pytest.raises(
        dotted_paths.CannotImport, match=r"; own_program\.py is the program that runs, and is imported a second time"
    ):
        dotted_paths.import_module("own_program")


def test_a_package_that_fails_while_a_module_in_it_is_imported_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_shop").mkdir()
    (tmp_path / "broken_shop" / "__init__.py").write_text("raise SystemExit('no settings')")
    (tmp_path / "broken_shop" / "models.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(dotted_paths.CannotImport, match=r"importing 'broken_shop\.models' raised .*no settings"):
        dotted_paths.import_module("broken_shop.models")
