"""What the memory store offers beside the contract of stores: faults, locked rows, rows that repeat exactly."""

from __future__ import annotations

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.adapters.memory.database import Step
from boxengine.adapters.memory.store import MemoryStore
from boxengine.domain.box import Box, BoxType
from boxengine.domain.outcome import Settlement
from boxengine.errors import StoreUnavailable

BOX = Box(name="order_item", type=BoxType.OUTBOX, table="order_items", bucket_size=4)


def failing_at(step: Step) -> MemoryStore:
    def fault(reached: Step) -> None:
        if reached == step:
            raise StoreUnavailable(step)

    return MemoryStore(ManualClock(), fault=fault)


def deliver(store: MemoryStore, row: int) -> None:
    with store.claims(BOX).open({0: None}, 10) as claim:
        claim.commit(Settlement(delivered=[row]))


@pytest.mark.parametrize(("step", "status"), [("commit", 0), ("committed", 2)])
def test_a_commit_can_be_refused_or_only_its_acknowledgement_lost(step: Step, status: int) -> None:
    store = failing_at(step)
    row = store.insert(BOX, event_key="k")
    with pytest.raises(StoreUnavailable):
        deliver(store, row)
    assert [found.status for found in store.rows(BOX)] == [status]
    with store.claims(BOX).open({0: None}, 10) as claim:
        assert claim.refused == frozenset()


def test_a_fault_of_one_handle_does_not_strike_its_twin() -> None:
    store = failing_at("poll")
    row = store.insert(BOX, event_key="k")
    with pytest.raises(StoreUnavailable):
        store.poll(BOX, [0], 10)
    assert [found.id for found in store.twin().poll(BOX, [0], 10)] == [row]


def test_a_row_in_an_open_claim_cannot_be_changed_by_others() -> None:
    store = MemoryStore(ManualClock())
    row = store.insert(BOX, event_key="k")
    with store.claims(BOX).open({0: None}, 10), pytest.raises(StoreUnavailable):
        store.update(BOX, row, status=3)
    store.update(BOX, row, status=3)
    assert [found.status for found in store.rows(BOX)] == [3]


def test_a_claim_that_has_ended_records_nothing_more() -> None:
    store = MemoryStore(ManualClock())
    row = store.insert(BOX, event_key="k")
    with store.claims(BOX).open({0: None}, 10) as claim:
        claim.commit(Settlement())
    with pytest.raises(RuntimeError, match="has ended"):
        claim.commit(Settlement(delivered=[row]))
    assert [found.status for found in store.rows(BOX)] == [0]


def test_a_taken_dedup_key_gives_the_first_rows_id() -> None:
    store = MemoryStore(ManualClock())
    first = store.insert(BOX, event_key="k", dedup_key="once")
    assert store.insert(BOX, event_key="k", dedup_key="once") == first
    assert len(store.rows(BOX)) == 1


def test_the_bucket_follows_from_the_event_key() -> None:
    store = MemoryStore(ManualClock())
    store.insert(BOX, event_key="order-7")
    assert [found.bucket for found in store.rows(BOX)] == [3]


def test_two_runs_make_the_same_rows() -> None:
    def run() -> list[object]:
        store = MemoryStore(ManualClock())
        store.insert(BOX, event_key="a")
        store.insert(BOX, event_key="b", event_name="changed", options={"n": 1})
        return list(store.rows(BOX))

    assert run() == run()
