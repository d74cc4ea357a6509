"""What the rows of one key tell: order, numbers, buckets."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from boxengine.domain.box import StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.partitioning import hashed
from boxengine.engine.audit.by_key import KeyChecks
from boxengine.errors import BoxError
from boxengine.ports.people.audit import AuditedRow, Replayed
from tests.unit.audit.rows import at, box, look, row, told

STRICT = (StrictOrder.KEY, StrictOrder.BUCKET)


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


def test_items_delivered_in_the_order_of_their_ids_or_in_one_batch_are_no_finding() -> None:
    assert look([row(1, 0), row(2, 1), row(3, 1), row(4, 2), row(5)]) == []


def test_an_item_delivered_after_a_later_one_of_its_key_has_been_overtaken() -> None:
    findings = look([row(1, 0), row(2, 9), row(3, 1), row(4, 2)])
    assert told(findings) == [("inversion", 2)]
    assert "12:00:09" in findings[0].detail
    assert "item 3 of its key was delivered before it, 2026-01-31T12:00:01" in findings[0].detail


def test_every_item_that_was_overtaken_is_named_once_however_many_overtook_it() -> None:
    findings = look([row(1, 9), row(2, 8), row(3, 1), row(4, 2), row(5, 3)])
    assert told(findings) == [("inversion", 2), ("inversion", 1)]


def test_a_key_has_its_own_order() -> None:
    assert look([row(1, 9, key="7"), row(2, 1, key="23")]) == []


def test_items_that_are_not_in_one_page_are_compared_all_the_same() -> None:
    rows = [row(number, number) for number in range(1, 20)] + [row(20, 2)]
    assert len(look(rows, page=1)) == len(look(rows)) == 17


@pytest.mark.parametrize("order", StrictOrder)
def test_a_pending_item_of_which_a_later_one_is_delivered_has_been_overtaken_already(order: StrictOrder) -> None:
    findings = look([row(1), row(2, 1), row(3)], strict_order=order)
    assert told(findings) == [("inversion", 1)]
    assert "is not delivered yet" in findings[0].detail


@pytest.mark.parametrize("delivered", [None, 9.0])
def test_an_item_that_failed_or_was_delayed_may_be_overtaken_unless_the_order_is_strict(
    delivered: float | None,
) -> None:
    rows = [row(1, delivered, may_wait=True), row(2, 1)]
    assert look(rows) == []
    for order in STRICT:
        assert told(look(rows, strict_order=order)) == [("inversion", 1)]


def test_a_failed_item_parks_its_key_only_where_the_order_is_strict_by_key() -> None:
    rows = [row(1, status=Status.FAILED, may_wait=True), row(2, 1)]
    assert told(look(rows, strict_order=StrictOrder.KEY)) == [("inversion", 1)]
    assert look(rows, strict_order=StrictOrder.BUCKET) == look(rows) == []


def test_a_discarded_item_may_be_passed() -> None:
    assert look([row(1, status=Status.DISCARDED), row(2, 1)], strict_order=StrictOrder.KEY) == []


def test_a_row_marked_as_delivered_by_hand_without_a_moment_says_nothing_about_order() -> None:
    assert look([row(1, 5), row(2, 1, processed_at=None), row(3, 6)]) == []


def test_keys_that_the_database_takes_for_equal_and_mixes_are_told_apart() -> None:
    rows = [row(4, 4, key="a7"), row(3, 1, key="A7"), row(2, 2, key="a7"), row(1, 0, key="A7")]
    checks = KeyChecks(box(), numbered=False, own_buckets=False, complete_from=at(0))
    assert list(checks.look(rows)) == []
    late = [row(4, 1, key="a7"), row(3, 5, key="A7"), row(2, 9, key="a7")]
    checks = KeyChecks(box(), numbered=False, own_buckets=False, complete_from=at(0))
    assert told(list(checks.look(late))) == [("inversion", 2)]


def test_it_finds_what_comparing_every_pair_finds() -> None:
    randomness = random.Random(7)
    for _ in range(300):
        rows = [
            row(number, randomness.choice([None, *range(6)]), may_wait=randomness.random() < 0.2)
            for number in range(1, 9)
        ]
        expected = {early.id for early in rows for late in rows if early.id < late.id and _wrong(early, late)}
        assert {finding.item for finding in look(rows)} == expected


def _wrong(early: AuditedRow, late: AuditedRow) -> bool:
    if early.may_wait or late.processed_at is None:
        return False
    return early.processed_at is None or early.processed_at > late.processed_at


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────


def test_numbers_that_lead_up_one_by_one_are_no_finding_wherever_they_begin() -> None:
    assert look([row(1, 0, seq=17), row(5, 1, seq=18), row(9, seq=19)]) == []


def test_a_missing_number_is_found_at_the_item_after_it() -> None:
    findings = look([row(1, 0, seq=1), row(2, 1, seq=2), row(9, 2, seq=5)])
    assert told(findings) == [("gap", 9)]
    assert findings[0].detail == "has number 5; 3, 4 of its key are missing after item 2"


def test_many_missing_numbers_are_one_finding() -> None:
    (finding,) = look([row(1, 0, seq=1), row(2, 1, seq=1000)])
    assert "2, 3, 4 to 999 of its key are missing" in finding.detail


def test_a_number_that_is_there_twice_or_falls_is_a_gap() -> None:
    findings = look([row(1, 0, seq=4), row(2, 1, seq=4), row(3, 2, seq=2)])
    assert told(findings) == [("gap", 3), ("gap", 2)]
    assert findings[1].detail == "has number 4, and item 1 of its key before it has number 4"


def test_a_row_without_a_number_after_one_with_a_number_is_a_gap() -> None:
    findings = look([row(1, 0), row(2, 1, seq=1), row(3, 2), row(4, 3, seq=2)])
    assert told(findings) == [("gap", 3)]
    assert "has no number, though item 2" in findings[0].detail


def test_what_retention_may_have_deleted_is_no_gap() -> None:
    old = [row(1, 0, seq=1, created_at=at(-3601)), row(9, 1, seq=5)]
    young = [row(1, 0, seq=1, created_at=at(-3600)), row(9, 1, seq=5)]
    assert look(old) == []
    assert told(look(young)) == [("gap", 9)]


def test_numbers_are_not_looked_at_in_a_table_without_them() -> None:
    assert look([row(1, 0), row(2, 1)], numbered=False) == []


# ── buckets ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bucket", [-1, 16, 400])
@pytest.mark.parametrize("status", [Status.PENDING, Status.FAILED])
def test_an_undelivered_row_outside_the_buckets_of_its_box_is_orphaned(bucket: int, status: Status) -> None:
    findings = look([row(1, bucket=bucket, status=status)], own_buckets=True)
    assert told(findings) == [("orphaned", 1)]
    assert "nobody will deliver it" in findings[0].detail


def test_an_undelivered_row_in_another_bucket_than_that_of_its_key_is_orphaned() -> None:
    findings = look([row(1, bucket=8), row(2, bucket=7)])
    assert told(findings) == [("orphaned", 1)]
    assert "its key belongs into 7" in findings[0].detail
    assert look([row(1, bucket=8)], own_buckets=True) == []


def test_where_finished_rows_are_does_not_matter_any_more() -> None:
    assert look([row(1, 0, bucket=400), row(2, status=Status.DISCARDED, bucket=8)]) == []


@pytest.mark.parametrize("bucket", [5, 11])
def test_a_key_may_have_been_given_as_a_negative_number(bucket: int) -> None:
    assert look([row(1, key="-5", bucket=bucket)]) == []


def test_buckets_follow_the_strategy_of_the_box() -> None:
    right = hashed("x", 16)
    assert look([row(1, key="x", bucket=right)], partition_strategy=hashed) == []
    assert told(look([row(1, key="x", bucket=right ^ 1)], partition_strategy=hashed)) == [("orphaned", 1)]


def test_a_strategy_that_does_not_take_text_is_an_error_that_says_what_to_do() -> None:
    def only_tuples(key: Any, bucket_size: int) -> int:
        return int(key[0][0]) % bucket_size

    with pytest.raises(BoxError, match="--own-buckets"):
        look([row(1, key="x")], partition_strategy=only_tuples)


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────


def test_fifty_times_the_rows_take_no_more_memory() -> None:
    def pages(keys: int) -> Iterator[list[AuditedRow]]:
        for key in range(keys, 0, -1):
            yield [row(key * 100 + number, number, key=str(key), bucket=key % 16) for number in range(10, 0, -1)]

    def peak(keys: int) -> int:
        checks = KeyChecks(box(), numbered=True, own_buckets=False, complete_from=at(-3600))
        tracemalloc.start()
        try:
            for page in pages(keys):
                assert list(checks.look(page)) == []
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(5_000) < 2 * peak(100)


def test_an_item_that_a_replay_sent_again_is_not_overtaken_and_overtakes_nobody() -> None:
    again = row(2, delivered=90, replayed=Replayed.AGAIN)
    assert told(look([row(1, delivered=1), again, row(3, delivered=3)], strict_order=StrictOrder.KEY)) == []
    waiting = row(2, replayed=Replayed.AGAIN)
    assert told(look([row(1, delivered=1), waiting, row(3, delivered=3)], strict_order=StrictOrder.KEY)) == []
    late = row(1, delivered=95)
    assert told(look([late, again, row(3, delivered=3)], strict_order=StrictOrder.KEY)) == [("inversion", 1)]


def test_a_copy_is_ordered_as_any_item_and_its_number_is_that_of_its_original() -> None:
    copy = row(4, delivered=9, seq=1, replayed=Replayed.COPY)
    originals = [row(1, delivered=1, seq=1), row(2, delivered=2, seq=2)]
    assert told(look([*originals, copy, row(5, delivered=10, seq=3)])) == []
    assert told(look([*originals, copy, row(5, delivered=8, seq=3)])) == [("inversion", 4)]
