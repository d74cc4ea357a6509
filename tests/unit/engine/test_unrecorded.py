"""Batches that cannot be recorded, or for which memory does not suffice: what is sent again, when, and how much at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Item, Status
from boxengine.errors import StoreConflict, StoreUnavailable, TransactionLost
from tests.unit.engine.bench import Batches, Bench, Single, spec


def test_an_item_that_takes_no_outcome_rests_for_growing_pauses_and_its_key_with_it() -> None:
    bench = Bench()
    bad, other = bench.insert(1, 2)
    bench.store.refuse(bench.box, bad, even_failed=True)
    transport = Single()
    delivery = bench.delivery(spec(transport))
    bench.run(delivery)
    assert transport.ids == [bad, other]
    (follower,) = bench.insert(1)
    for pause, times in ((4, 1), (2, 2), (6, 2), (5, 3)):
        bench.clock.advance(timedelta(seconds=pause))
        bench.run(delivery)
        assert transport.ids.count(bad) == times
        assert (follower in transport.ids) == (times > 1)
    assert [bench.row(each).status for each in (bad, other)] == [Status.PENDING, Status.DELIVERED]
    assert [context["item_id"] for _error, context in bench.tracked] == [bad] * 3


def test_a_commit_that_fails_twice_is_forgiven_and_then_the_batch_rests() -> None:
    broken = True

    def fault(step: str) -> None:
        if broken and step == "commit":
            raise StoreUnavailable("no")

    bench = Bench(fault=fault, max_retries=None)
    (item,) = bench.insert(1)
    transport = Single()
    delivery = bench.delivery(spec(transport))
    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            bench.run(delivery)
    assert transport.ids == [item] * 3
    broken = False
    assert bench.run(delivery).at_rest
    bench.clock.advance(timedelta(seconds=5))
    assert not bench.run(delivery).at_rest
    assert transport.ids == [item] * 4
    assert bench.row(item).status == Status.DELIVERED


def test_an_item_whose_handler_loses_the_transaction_again_and_again_lets_the_others_go() -> None:
    def answer(item: Item) -> None:
        if item.id == bad:
            raise TransactionLost("no")

    bench = Bench()
    first, bad, last = bench.insert(1, 2, 3)
    transport = Single(answer)
    delivery = bench.delivery(spec(transport))
    for _ in range(3):
        with pytest.raises(TransactionLost):
            bench.run(delivery)
    assert transport.ids == [first, bad] * 3
    bench.run(delivery)
    assert [bench.row(each).status for each in (first, bad, last)] == [2, 0, 2]
    assert bench.row(bad).errors_count == 0
    assert bench.tracked == []


class Writing:
    """Writes through the session."""

    def __init__(self, answer: Callable[[Item], None]) -> None:
        self._answer = answer

    def __call__(self, item: Item, _payload: Any, *, session: Any) -> None:
        self._answer(item)


class WritingBatches:
    """The same for whole batches."""

    def __init__(self, answer: Callable[[Item], None]) -> None:
        self._answer = answer

    def call_batch(self, items: Sequence[Item], *, session: Any) -> list[None]:
        return [self._answer(item) for item in items]


@pytest.mark.parametrize("kind", [Writing, WritingBatches])
def test_another_transaction_in_a_handlers_way_costs_no_attempt_and_in_the_end_lets_the_others_go(
    kind: type[Writing | WritingBatches],
) -> None:
    def answer(item: Item) -> None:
        if item.id == bad:
            raise StoreConflict("the database: deadlock detected")

    bench = Bench(strict_order=StrictOrder.KEY)
    first, bad, follower, last = bench.insert(1, 2, 2, 3)
    delivery = bench.delivery(spec(kind(answer)))
    reports = [bench.run(delivery) for _ in range(4)]
    assert [bench.row(each).status for each in (first, bad, follower, last)] == [2, 0, 0, 2]
    assert [report.progressed for report in reports] == [True, True, True, False]
    assert not any(report.unreachable for report in reports)
    assert bench.row(bad).errors_count == 0
    assert bench.tracked == []


def test_a_row_that_cannot_be_read_fails_with_the_reason() -> None:
    bench = Bench()
    bad, good = bench.insert(1, 2)
    bench.store.spoil(bench.box, bad, "the row cannot be read: year 294276")
    transport = Batches()
    bench.run(bench.delivery(spec(transport)))
    assert transport.ids == [good]
    assert [bench.row(each).status for each in (bad, good)] == [Status.FAILED, Status.DELIVERED]
    assert "year 294276" in bench.row(bad).error_log
