"""How many of the log's rows a claim asks for, and which buckets it has come to."""

from __future__ import annotations

from boxengine.domain.log_progress import Portions

NO_BUCKETS: frozenset[int] = frozenset()


def filling(limit: int = 100, *, buckets: int = 10, under_way: int = 0) -> Portions:
    return Portions.filling(limit, buckets=buckets).beside(under_way)


def test_a_bucket_that_begins_a_batch_may_take_a_quarter_of_the_claim() -> None:
    assert filling(100, buckets=10).most == 25
    assert filling(100, buckets=2).most == 50
    assert filling(100, buckets=1).most == 100


def test_buckets_in_the_middle_of_a_batch_keep_their_shares() -> None:
    alone, beside = filling(100, buckets=10).room, filling(100, buckets=10, under_way=4).room
    assert alone is not None
    assert beside is not None
    assert alone - beside == 40


def test_what_fits_is_read_whole() -> None:
    assert filling().sort_out({0: 25, 1: 0, 2: 25, 3: 25, 4: 25}) == (NO_BUCKETS, {})


def test_of_a_large_bucket_the_first_rows_are_given() -> None:
    assert filling().sort_out({0: 26, 1: 3}) == (NO_BUCKETS, {0: 25})


def test_the_claim_has_not_come_to_buckets_behind_the_last_that_was_read() -> None:
    room = filling().room
    assert room is not None
    last = room + 1 - 4 * 25
    assert filling().sort_out({3: 25, 5: 25, 0: 25, 2: 25, 7: last, 1: 0, 4: 0}) == (frozenset({1, 4, 7}), {})


def test_a_last_bucket_with_many_rows_is_given_as_far_as_it_was_read() -> None:
    assert filling().sort_out({3: 25, 5: 25, 0: 25, 1: 10, 2: 20, 4: 0}) == (frozenset({4}), {2: 20})


def test_a_bucket_alone_is_never_left_unread() -> None:
    assert filling(1, buckets=1).sort_out({0: 2}) == (NO_BUCKETS, {0: 1})
    crowded = filling(100, buckets=10, under_way=10)
    assert crowded.room is not None
    assert crowded.sort_out({0: crowded.room + 1, 1: 0}) == (frozenset({1}), {0: crowded.room + 1})


def test_in_even_portions_a_claim_comes_to_every_bucket() -> None:
    portions = Portions.even(100, buckets=10)
    assert portions.sort_out({0: 11, 1: 11, 2: 10, 3: 0}) == (NO_BUCKETS, {0: 10, 1: 10})
