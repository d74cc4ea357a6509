"""Annotations of users' functions may name what only type checkers import, as Python 3.14 allows without quotes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import boxengine
from boxengine.domain.signatures import signature_of
from boxengine.settings.call_shapes import misfit
from tests.unit.house.imports import modules

PACKAGE = Path(boxengine.__file__).parent
USERS_CODE = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from shop import Order
def send(item: Order, payload: bytes) -> Order: ...
"""
OWN_CODE = "boxengine.cli.items_acting"
"""Reads the signature of its own command."""


def reads_signatures(source: str) -> bool:
    """Whether it asks ``inspect`` for the signature of something."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module="inspect", names=names) if any(each.name == "signature" for each in names):
                return True
            case ast.Attribute(value=ast.Name(id="inspect"), attr="signature"):
                return True
    return False


@pytest.fixture
def send() -> Callable[..., Any]:
    names: dict[str, Any] = {}
    # By default it would inherit this module's __future__, which makes all annotations texts.
    exec(compile(USERS_CODE, "shop.py", "exec", dont_inherit=True), names)
    made: Callable[..., Any] = names["send"]
    return made


@pytest.mark.skipif(
    sys.version_info < (3, 14), reason="earlier Pythons evaluate annotations as they define the function"
)
def test_a_function_is_called_whose_annotations_exist_only_for_type_checkers(send: Callable[..., Any]) -> None:
    assert list(signature_of(send).parameters) == ["item", "payload"]
    assert misfit(send, "(item, payload)") is None


def test_signatures_of_users_code_are_read_in_one_place() -> None:
    readers = [name for name, file in modules(PACKAGE).items() if reads_signatures(file.read_text())]
    assert sorted(readers) == [OWN_CODE, "boxengine.domain.signatures"]


@pytest.mark.parametrize(
    "source", ["import inspect\ninspect.signature(print)\n", "from inspect import Parameter, signature\n"]
)
def test_both_ways_to_read_a_signature_are_found(source: str) -> None:
    assert reads_signatures(source)
