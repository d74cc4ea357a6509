"""Which partitions of a log are made next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from boxengine.adapters.sql.log.partitions import (
    AHEAD,
    FIRST_STEP,
    LEAST_STEP,
    MOST_STEP,
    Partitions,
    Range,
    is_partition_of,
    name_of,
)

HOUR = timedelta(hours=1)
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def partitions(*ranges: Range, current: int = 1000) -> Partitions:
    return Partitions(
        ranges=ranges,
        default="log_default",
        owner="shop",
        is_owner=True,
        may_alter=True,
        current=current,
        ended=current,
        now=NOW,
    )


def made(by: int, ago: timedelta) -> Range:
    return Range(0, 10, "p0", NOW - ago, by)


def test_what_lies_ahead_is_covered_without_gaps() -> None:
    assert partitions(Range(0, 1100)).missing(100) == [(1100, 1200)]
    assert partitions(Range(0, 1001)).missing(100) == [(1001, 1101), (1101, 1201)]
    assert partitions(Range(0, 1200)).missing(100) == []


def test_where_nothing_covers_the_present_the_first_range_leaves_room_for_transactions_under_way() -> None:
    assert partitions(Range(0, 900)).missing(800) == [(1008, 1808), (1808, 2608)]
    assert partitions().missing(800) == [(1008, 1808), (1808, 2608)]


def test_ranges_of_another_server_ahead_are_never_overlapped() -> None:
    for low in range(1000, 1300, 7):
        for width in (1, 50, 500):
            there = (Range(low, low + width), Range(low + width + 30, low + width + 60))
            found = partitions(*there).missing(100)
            spans = sorted([*found, *((each.low, each.high) for each in there)])
            assert all(low < high for low, high in spans)
            assert all(one[1] <= other[0] for one, other in pairwise(spans))
            assert max(high for _, high in spans) >= 1000 + AHEAD * 100


def test_the_next_partition_is_as_wide_as_the_servers_transactions_are_many() -> None:
    busy = partitions(made(1_000_000, HOUR), current=3_000_000)
    assert busy.step(3 * HOUR) == 6_000_000
    assert partitions(made(1, HOUR)).step(HOUR) == LEAST_STEP
    assert partitions(made(0, HOUR), current=2**40).step(HOUR) == MOST_STEP


def test_the_newest_partition_that_is_old_enough_tells_the_rate() -> None:
    now_and_then = partitions(
        made(0, 9 * HOUR), made(2_000_000, HOUR), made(2_999_999, timedelta(0)), current=3_000_000
    )
    assert now_and_then.step(HOUR) == 1_000_000
    assert partitions(made(999, timedelta(minutes=4))).step(HOUR) == FIRST_STEP
    assert partitions(made(5000, HOUR)).step(HOUR) == FIRST_STEP


def test_a_partition_is_known_by_its_name() -> None:
    assert is_partition_of("shop.items_log", name_of("shop.items_log", 2**64 - 1))
    assert is_partition_of("items_log", "items_log_default")
    assert not is_partition_of("items_log", "items_log")
    assert not is_partition_of("items_log", "items_log_parts")
    assert not is_partition_of("items_log", "other_items_log_p0")
