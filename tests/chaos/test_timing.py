"""How waiting is measured."""

from __future__ import annotations

import pytest

from tests.chaos.checker import Injection
from tests.chaos.record import Attempt
from tests.chaos.timing import longest_stall, recovery

BOX = "order_outbox_item"


def sent(id_: int, at: float, *, bucket: int = 0, taken: bool = True) -> Attempt:
    return Attempt(at, 1, BOX, id_, bucket, "a", taken)


def commits(*moments: float) -> dict[tuple[str, int], float]:
    """Of the items 1, 2, ..."""
    return {(BOX, id_): at for id_, at in enumerate(moments, start=1)}


def fault(begin: float, end: float) -> Injection:
    return Injection(begin, end)


def test_a_bucket_stalls_while_it_has_items_and_none_is_sent() -> None:
    attempts = [sent(1, 1.0), sent(2, 1.5), sent(3, 8.0)]
    assert longest_stall(attempts, commits(0.0, 0.0, 2.0)) == 6.0


def test_an_empty_bucket_does_not_stall() -> None:
    attempts = [sent(1, 1.0), sent(2, 60.0)]
    assert longest_stall(attempts, commits(0.9, 59.5)) == pytest.approx(0.5)


def test_the_wait_for_the_first_item_counts() -> None:
    assert longest_stall([sent(1, 7.0)], commits(2.0)) == 5.0


def test_a_bucket_that_stands_still_is_seen_though_others_go_on() -> None:
    attempts = [sent(1, 9.0), sent(2, 1.0, bucket=1), sent(3, 5.0, bucket=1)]
    assert longest_stall(attempts, commits(0.0, 0.0, 4.0)) == 9.0


def test_recovery_is_the_time_until_the_last_of_the_waiting_buckets_goes_on() -> None:
    attempts = [sent(1, 11.0), sent(2, 14.0, bucket=1)]
    assert recovery(attempts, commits(9.0, 9.0), [fault(8.0, 10.0)]) == 4.0


def test_an_item_that_came_after_the_fault_waits_from_its_commit() -> None:
    assert recovery([sent(1, 14.0)], commits(13.5), [fault(8.0, 10.0)]) == 0.5


def test_what_is_waited_after_the_next_fault_is_that_ones() -> None:
    attempts = [sent(1, 19.0)]
    assert recovery(attempts, commits(9.0), [fault(10.0, 10.0), fault(13.0, 16.0)]) == 3.0


def test_a_refusal_is_progress() -> None:
    attempts = [sent(1, 11.0, taken=False), sent(1, 14.0)]
    assert recovery(attempts, commits(9.0), [fault(10.0, 10.0)]) == 1.0


def test_with_nothing_sent_afterwards_there_is_no_recovery_to_tell_of() -> None:
    assert recovery([sent(1, 9.0)], commits(8.0), [fault(10.0, 10.0)]) is None
