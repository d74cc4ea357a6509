"""Two thousand short histories keep every promise of SEMANTICS 9; ``make soak`` runs as many as there is time for."""

from __future__ import annotations

import pytest

from tests.simulation.history import History
from tests.simulation.verdict import broken_promises

HISTORIES = 2_000
CHUNK = 250


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_every_history_keeps_every_promise(first: int) -> None:
    broken = {seed: found for seed in range(first, first + CHUNK) if (found := broken_promises(seed))}
    assert not broken, "\n".join(
        f"python -m tests.simulation replay {seed}: {found[0]}" for seed, found in broken.items()
    )


def test_a_seed_replays_exactly() -> None:
    for seed in range(40):
        assert _trace(seed) == _trace(seed)


def test_a_trace_does_not_change_the_history_it_tells() -> None:
    for seed in range(40):
        silent, traced = History(seed), History(seed, tracing=True)
        silent.run()
        traced.run()
        assert silent.record.step == traced.record.step
        assert silent.record.now == traced.record.now


def _trace(seed: int) -> list[str]:
    history = History(seed, tracing=True)
    history.run()
    return history.record.trace
