"""What the tests of this folder have in common."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

ALLOCATIONS = 50_000
"""Allocations between two collections. A history makes many objects and few cycles; at the usual 700, collecting takes a fifth of
the time."""


@pytest.fixture(autouse=True)
def rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    yield
    gc.set_threshold(*before)
