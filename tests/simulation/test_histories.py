"""A thousand short histories keep every promise of SEMANTICS 9; ``make soak`` runs as many as there is time for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product

import pytest

from boxengine.domain.box import Storage, StrictOrder
from boxengine.domain.item import Status
from tests.simulation.history import History
from tests.simulation.promises import Violation
from tests.simulation.scenario import (
    AT_CALLS,
    AWAY,
    CANCELLED,
    FROM_OUTSIDE,
    KILLING,
    MOVING,
    OF_SUBSCRIPTIONS,
    RESTORED,
)
from tests.simulation.verdict import broken_promises, judge

HISTORIES = 1_000
JUDGED_TOGETHER = 400
CHUNK = 200


def test_the_first_histories_keep_every_promise_and_meet_every_fault_and_every_outcome() -> None:
    """A quiet simulation proves nothing: every fault strikes, and every kind of box is met."""
    broken: dict[int, list[Violation]] = {}
    faults: Counter[str] = Counter()
    kinds: set[tuple[Storage, StrictOrder]] = set()
    outcomes: Counter[Status] = Counter()
    ways: Counter[str] = Counter()
    readers: set[int] = set()
    parted: set[bool] = set()
    for seed in range(JUDGED_TOGETHER):
        history = History(seed)
        if found := judge(history):
            broken[seed] = found
        record = history.record
        faults.update(record.faults)
        kinds |= {(box.storage, box.strict_order) for box in history.boxes}
        parted |= {box.log_partitions is not None for box in history.boxes if box.storage is Storage.LOG}
        readers |= {max(1, len(box.subscriptions)) for box in history.boxes}
        ways.update(record.ways)
        outcomes.update(Status(change.after.status) for change in record.changes if change.after is not None)
    assert not broken, replays(broken)
    everywhere = {*AT_CALLS, *FROM_OUTSIDE, AWAY, KILLING, CANCELLED, "session cut"}
    assert everywhere | {*OF_SUBSCRIPTIONS, MOVING, RESTORED} <= faults.keys()
    assert readers == {1, 2, 3}, "logs are read by the box itself, and by subscriptions"
    assert parted == {True, False}, "logs with partitions, and without"
    assert kinds == set(product(Storage, StrictOrder))
    assert min(ways["takes"], ways["seizes"]) > 100, "buckets come both through the queue and past it"
    assert min(ways["begins without leases"], ways["asks for leases later"]) > 5, "and past the coordinator"
    assert set(outcomes) == set(Status)


@pytest.mark.parametrize("first", range(JUDGED_TOGETHER, HISTORIES, CHUNK))
def test_every_history_keeps_every_promise(first: int) -> None:
    broken = {seed: found for seed in range(first, first + CHUNK) if (found := broken_promises(seed))}
    assert not broken, replays(broken)


def replays(broken: Mapping[int, list[Violation]]) -> str:
    return "\n".join(f"python -m tests.simulation replay {seed}: {found[0]}" for seed, found in broken.items())


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
