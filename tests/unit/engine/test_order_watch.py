"""Items that were delivered after a later one of their key, noticed by the process that delivers them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from boxengine.domain.box import Box, StrictOrder
from boxengine.domain.item import Item
from boxengine.engine.delivering.batches.order import PAGE, OrderWatch
from boxengine.errors import StoreUnavailable
from boxengine.ports import ItemFilter, ItemRow
from boxengine.ports.events import Event, OrderViolated
from tests.unit.engine.bench import make_box

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Rows:
    """What an ``ItemsStore`` says about items; of those it is not told about nothing."""

    def __init__(self) -> None:
        self.excuses: dict[int, dict[str, Any]] = {}
        self.asked: list[tuple[int, ...]] = []
        self.out = False

    def page(self, box: Box, which: ItemFilter, *, after: int, limit: int) -> list[ItemRow]:
        self.asked.append(which.ids)
        if self.out:
            raise StoreUnavailable("the database is down")
        empty: dict[str, Any] = dict.fromkeys(ItemRow.__dataclass_fields__)
        return [
            ItemRow(**{**empty, "id": row_id, "errors_count": 0, **self.excuses[row_id]})
            for row_id in which.ids
            if row_id in self.excuses
        ]


class Watched:
    """An ``OrderWatch`` and what it tells."""

    def __init__(self, *, remembered: int = 100, **policy: Any) -> None:
        self.box = make_box(**policy)
        self.rows = Rows()
        self.violations: list[int] = []
        self.losses = 0
        self.server: str | None = "one"
        self.watch = OrderWatch(
            self.box,
            items=self.rows,  # type: ignore[arg-type]
            observer=self,
            losses=lambda: self.losses,
            server=self.answer,
            remembered=remembered,
        )

    def answer(self) -> str:
        if self.server is None:
            raise StoreUnavailable("the database is down")
        return self.server

    def see(self, event: Event) -> None:
        assert isinstance(event, OrderViolated)
        assert event.box is self.box
        self.violations += [item.id for item in event.items]

    def deliver(
        self, *items: tuple[int, str], tried: bool = False, only: Sequence[int] | None = None, bucket: int = 0
    ) -> None:
        """One batch of id and key."""
        batch = [self._item(item_id, key, tried=tried, bucket=bucket) for item_id, key in items]
        self.watch.delivered(batch, [item_id for item_id, _ in items] if only is None else only)

    def _item(self, item_id: int, key: str, *, tried: bool, bucket: int) -> Item:
        fields: dict[str, Any] = dict.fromkeys(Item._fields)
        return Item(
            **{**fields, "id": item_id, "event_key": key, "bucket": bucket, "processed_at": NOON if tried else None}
        )


def test_items_in_the_order_of_their_ids_are_no_violation() -> None:
    watched = Watched()
    watched.deliver((1, "a"), (2, "b"), (3, "a"))
    watched.deliver((2, "c"), (4, "a"), (5, "b"))
    assert watched.violations == []
    assert watched.rows.asked == []


def test_an_item_after_a_later_one_of_its_key_is_a_violation_and_counts_once() -> None:
    watched = Watched()
    watched.deliver((8, "a"), (9, "b"))
    watched.deliver((6, "b"), (7, "a"))
    watched.deliver((10, "a"), (11, "b"))
    assert watched.violations == [6, 7]


def test_what_came_late_does_not_make_what_is_remembered_older() -> None:
    watched = Watched()
    watched.deliver((9, "a"))
    watched.deliver((5, "a"))
    watched.deliver((8, "a"), (10, "a"))
    assert watched.violations == [5, 8]


def test_ids_that_another_server_has_given_once_more_are_no_violation() -> None:
    watched = Watched()
    watched.deliver((8, "a"), (9, "b"))
    watched.losses += 1
    watched.deliver((6, "a"), (7, "b"))
    assert watched.violations == []
    watched.deliver((5, "a"))
    assert watched.violations == [5]


def test_ids_that_another_server_has_given_once_more_behind_a_pooler_are_no_violation() -> None:
    """A pooler keeps its clients' connections, so that nobody loses any."""
    watched = Watched()
    watched.deliver((8, "a"), (9, "b"))
    watched.server = "another"
    watched.deliver((6, "a"), (7, "b"))
    assert watched.violations == []
    watched.deliver((5, "a"))
    assert watched.violations == [5]


def test_where_the_server_cannot_say_which_it_is_nothing_is_told() -> None:
    watched = Watched()
    watched.server = None
    watched.deliver((8, "a"))
    watched.deliver((7, "a"))
    assert watched.violations == []
    watched.server = "one"
    watched.deliver((6, "a"))
    assert watched.violations == [6]


def test_only_what_was_delivered_counts() -> None:
    watched = Watched()
    watched.deliver((8, "a"), (9, "b"), only=[9])
    watched.deliver((7, "a"), (6, "b"), only=[7])
    assert watched.violations == []


def test_without_strict_order_an_item_that_failed_before_may_come_late() -> None:
    loose, strict = Watched(), Watched(strict_order=StrictOrder.KEY)
    for watched in (loose, strict):
        watched.deliver((8, "a"))
        watched.deliver((7, "a"), tried=True)
    assert (loose.violations, loose.rows.asked) == ([], [])
    assert strict.violations == [7]


def test_without_strict_order_a_delayed_item_or_one_made_due_by_hand_may_come_late() -> None:
    watched = Watched()
    watched.rows.excuses = {5: {"available_at": NOON}, 6: {"error_log": "it failed once"}, 7: {}}
    watched.deliver((8, "a"))
    watched.deliver((4, "a"), (5, "a"), (6, "a"), (7, "a"))
    assert watched.violations == [4, 7]
    assert watched.rows.asked == [(4, 5, 6, 7)]


def test_where_the_database_cannot_say_whether_there_is_an_excuse_nothing_is_told() -> None:
    watched = Watched()
    watched.rows.out = True
    watched.deliver((8, "a"))
    watched.deliver((7, "a"))
    assert watched.violations == []


def test_the_items_delivered_last_are_remembered_and_not_many_more() -> None:
    watched = Watched(remembered=PAGE)
    for number in range(10 * PAGE):
        watched.deliver((number + PAGE, str(number)))
        assert watched.watch.remembered <= 2 * PAGE
    watched.deliver(*((number - 9 * PAGE + 1, str(number)) for number in range(9 * PAGE, 10 * PAGE)))
    assert watched.violations == list(range(1, PAGE + 1))


def test_a_batch_below_what_another_bucket_has_delivered_is_no_violation() -> None:
    watched = Watched()
    watched.deliver((8, "a"), (9, "b"), bucket=1)
    watched.deliver((6, "c"), (7, "d"), bucket=2)
    watched.deliver((5, "a"), bucket=1)
    assert watched.violations == [5]


@pytest.mark.parametrize("order", [StrictOrder.NONE, StrictOrder.KEY])
def test_an_item_that_a_replay_sends_before_later_ones_is_no_violation(order: StrictOrder) -> None:
    """It was in order the first time. A copy is an item like any other."""
    watched = Watched(strict_order=order)
    watched.deliver((8, "a"))
    uuid, other = "6f5d8f0e-53a3-4a55-9a0c-7c1c6a3b1a22", "0b8b0e3c-7a0d-4b7e-8a36-5d9e0e9e4a11"
    again = watched._item(6, "a", tried=False, bucket=0)._replace(uuid=uuid)
    watched.watch.delivered([again._replace(raw_options={"headers": {"Replay-Of": uuid}})], [6])
    assert watched.violations == []
    watched.rows.excuses = {6: {}}
    watched.watch.delivered([again._replace(raw_options={"headers": {"Replay-Of": other}})], [6])
    assert watched.violations == [6]


def test_it_notices_what_comparing_with_all_earlier_deliveries_notices() -> None:
    randomness = random.Random(5)
    for _ in range(200):
        watched, seen, expected = Watched(), dict[str, int](), list[int]()
        ids = randomness.sample(range(100), 30)
        for start in range(0, 30, 3):
            batch = [(item_id, randomness.choice("abc")) for item_id in sorted(ids[start : start + 3])]
            watched.deliver(*batch)
            expected += [item_id for item_id, key in batch if seen.get(key, -1) > item_id]
            for item_id, key in batch:
                seen[key] = max(item_id, seen.get(key, -1))
        assert watched.violations == expected
