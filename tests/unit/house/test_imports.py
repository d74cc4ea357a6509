"""No module of the package needs itself, by whatever detour."""

from __future__ import annotations

from pathlib import Path

import pytest

import boxengine
from tests.unit.house.imports import circles, imports, modules

PACKAGE = Path(boxengine.__file__).parent


def write(folder: Path, **sources: str) -> Path:
    package = folder / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    return package


def test_no_modules_import_one_another_in_a_circle() -> None:
    assert circles(imports(PACKAGE)) == []


@pytest.mark.parametrize(
    "back",
    [
        pytest.param("import shop.orders\n", id="at the top"),
        pytest.param("def late():\n    from shop import orders\n", id="inside a function"),
        pytest.param("def late():\n    from shop.orders import Order\n", id="a name out of it"),
        pytest.param("if TYPE_CHECKING:\n    from shop.orders import Order\n", id="for a type checker"),
    ],
)
def test_a_circle_is_found_wherever_it_is_closed(tmp_path: Path, back: str) -> None:
    package = write(tmp_path, orders="from shop import stock\n", stock="from shop.prices import Price\n", prices=back)
    assert circles(imports(package)) == [["shop.orders", "shop.stock", "shop.prices", "shop.orders"]]


def test_two_ways_to_one_module_are_no_circle(tmp_path: Path) -> None:
    package = write(tmp_path, orders="from shop import stock, prices\n", stock="import shop.prices\n", prices="")
    assert circles(imports(package)) == []


def test_every_package_says_what_it_holds_and_holds_something() -> None:
    packages = [file.parent for file in modules(PACKAGE).values() if file.name == "__init__.py"]
    assert [folder for folder in packages if not any(each.name != "__init__.py" for each in folder.rglob("*.py"))] == []
    silent = [folder for folder in packages if not (folder / "__init__.py").read_text().startswith('"""')]
    assert silent == []
