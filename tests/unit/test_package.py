"""``import boxengine``: names that are imported when they are asked for."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

import boxengine
from boxengine.app.running import garbage


def test_every_public_name_is_there() -> None:
    missing = [name for name in boxengine.__all__ if not hasattr(boxengine, name)]
    assert missing == []


def test_errors_are_there_without_an_import_of_their_own() -> None:
    asked = "import boxengine; print(boxengine.errors.BoxError.__name__)"
    assert (
        subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout == "BoxError\n"
    )


def test_the_names_of_the_package_are_listed_before_they_are_asked_for() -> None:
    assert set(boxengine.__all__) <= set(dir(boxengine))


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'boxengine' has no attribute 'create_item'"):
        getattr(boxengine, "create_item")  # noqa: B009 - a checker knows that it is not there


def test_garbage_is_looked_for_again_after_a_start_that_failed() -> None:
    def start() -> None:
        with garbage.put_off():
            assert not gc.isenabled()
            raise RuntimeError("no configuration")

    try:
        with pytest.raises(RuntimeError, match="no configuration"):
            start()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
