"""The simulation bites: each deliberate bug is noticed within few seeds."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import BEGINNING, FOCUS, MUTANTS, Mutant
from tests.simulation.verdict import broken_promises

SEEDS = 4000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_deliberate_bug_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    first = BEGINNING.get(mutant, 0)
    seeds = (*range(first, SEEDS), *range(first))
    assert any(broken_promises(seed, only=FOCUS.get(mutant)) for seed in seeds), mutant.__doc__


def test_every_mutant_tells_its_bug() -> None:
    assert len(MUTANTS) >= 15
    assert all(mutant.__doc__ for mutant in MUTANTS)
    assert FOCUS.keys() <= set(MUTANTS)
