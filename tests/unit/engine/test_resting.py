"""Items whose outcome could not be recorded rest, and so do those that must not overtake them."""

from __future__ import annotations

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item
from boxengine.engine.delivering.batches.resting import Resting
from tests.unit.engine.bench import make_box

CLOCK = ManualClock()
BOX = make_box()


def item(item_id: int, key: str, bucket: int) -> Item:
    return Item(item_id, str(item_id), None, key, bucket, 0, None, b"", 0, CLOCK.now(), None, BOX, CLOCK.now())


ITEMS = [item(1, "a", 1), item(2, "a", 1), item(3, "b", 1), item(4, "c", 2)]


@pytest.mark.parametrize(
    ("order", "awake"),
    [(StrictOrder.NONE, [3, 4]), (StrictOrder.KEY, [3, 4]), (StrictOrder.BUCKET, [4])],
)
def test_followers_of_an_item_at_rest_rest_with_it(order: StrictOrder, awake: list[int]) -> None:
    resting = Resting(CLOCK, order)
    assert resting.awake(ITEMS) == ITEMS
    resting.unrecorded([1], for_good=True)
    assert [item.id for item in resting.awake(ITEMS)] == awake
    resting.recorded([1])
    assert resting.awake(ITEMS) == ITEMS


def test_what_nobody_will_record_any_more_makes_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxengine.engine.delivering.batches.resting.MOST", 3)
    resting = Resting(CLOCK, StrictOrder.NONE)
    resting.unrecorded([101, 102, 103], for_good=True)  # another worker delivers them
    resting.unrecorded([1], for_good=True)
    assert [item.id for item in resting.awake(ITEMS)] == [3, 4]
    resting.unrecorded([102, 104, 105], for_good=True)
    assert resting.awake(ITEMS) == ITEMS, "the oldest is forgotten"
