"""The histories are not quiet: every fault strikes, and every kind of box and outcome is met."""

from __future__ import annotations

from collections import Counter
from itertools import product

from boxengine.domain.box import Storage, StrictOrder
from boxengine.domain.item import Status
from tests.simulation.history import History
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


def test_four_hundred_histories_meet_every_fault_and_every_outcome() -> None:
    faults: Counter[str] = Counter()
    kinds: set[tuple[Storage, StrictOrder]] = set()
    outcomes: Counter[Status] = Counter()
    ways: Counter[str] = Counter()
    readers: set[int] = set()
    parted: set[bool] = set()
    for seed in range(400):
        history = History(seed)
        record = history.run()
        faults.update(record.faults)
        kinds |= {(box.storage, box.strict_order) for box in history.boxes}
        parted |= {box.log_partitions is not None for box in history.boxes if box.storage is Storage.LOG}
        readers |= {max(1, len(box.subscriptions)) for box in history.boxes}
        ways.update(record.ways)
        outcomes.update(Status(change.after.status) for change in record.changes if change.after is not None)
    everywhere = {*AT_CALLS, *FROM_OUTSIDE, AWAY, KILLING, CANCELLED, "session cut"}
    assert everywhere | {*OF_SUBSCRIPTIONS, MOVING, RESTORED} <= faults.keys()
    assert readers == {1, 2, 3}, "logs are read by the box itself, and by subscriptions"
    assert parted == {True, False}, "logs with partitions, and without"
    assert kinds == set(product(Storage, StrictOrder))
    assert min(ways["takes"], ways["seizes"]) > 100, "buckets come both through the queue and past it"
    assert min(ways["begins without leases"], ways["asks for leases later"]) > 5, "and past the coordinator"
    assert set(outcomes) == set(Status)
