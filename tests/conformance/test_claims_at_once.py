"""Claims of several workers at the same time: nobody waits, nobody shares a bucket, nothing is settled twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from boxengine.domain.box import Box
from boxengine.domain.outcome import Settlement
from tests.conformance import stores
from tests.conformance.stores import FullStore, Harness

PATIENCE = 30
"""Seconds after which a thread that should never have waited counts as hanging."""


@pytest.fixture(params=stores.NAMES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def deliver_some(store: FullStore, box: Box, journal: list[tuple[int, int]]) -> None:
    """Notes each item (id, bucket) while its bucket is held, as a transport would see them."""
    with store.claims(box).open(dict.fromkeys(box.buckets), 8) as claim:
        journal.extend((item.id, item.bucket) for item in claim.items)
        claim.commit(Settlement(delivered=[item.id for item in claim.items]))


def test_a_held_bucket_is_refused_to_others_without_waiting(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box, bucket=0)
    free = harness.insert(box, bucket=1)
    with (
        harness.store.claims(box).open({0: None}, 10),
        harness.other.claims(box).open({0: None, 1: None}, 10) as second,
    ):
        assert second.refused == {0}
        assert [item.id for item in second.items] == [free]
        assert second.exhausted == {1}


def test_a_held_bucket_is_refused_to_another_thread_of_the_same_process(
    harness: Harness, threads: ThreadPoolExecutor
) -> None:
    box = harness.make_box()
    harness.insert(box)

    def refused() -> frozenset[int]:
        with harness.store.claims(box).open({0: None}, 10) as second:
            return second.refused

    with harness.store.claims(box).open({0: None}, 10):
        assert threads.submit(refused).result(PATIENCE) == {0}
    assert threads.submit(refused).result(PATIENCE) == frozenset()


def test_boxes_do_not_share_their_buckets_locks(harness: Harness) -> None:
    box, other = harness.make_box(), harness.make_box()
    row = harness.insert(other)
    with harness.store.claims(box).open({0: None}, 10), harness.other.claims(other).open({0: None}, 10) as second:
        assert ([item.id for item in second.items], second.refused) == ([row], frozenset())


def test_a_commit_frees_the_buckets_before_the_claim_is_left(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as first:
        first.commit(Settlement(delivered=[row]))
        with harness.other.claims(box).open({0: None}, 10) as second:
            assert (list(second.items), second.refused) == ([], frozenset())


def test_of_two_claims_at_once_each_bucket_goes_to_one(harness: Harness, threads: ThreadPoolExecutor) -> None:
    box = harness.make_box()
    for bucket in box.buckets:
        harness.insert(box, bucket=bucket)
    together = Barrier(2)

    def granted(store: FullStore) -> tuple[set[int], set[int]]:
        together.wait(PATIENCE)
        with store.claims(box).open(dict.fromkeys(box.buckets), 100) as claim:
            together.wait(PATIENCE)
            return set(box.buckets) - claim.refused, {item.bucket for item in claim.items}

    first, second = (threads.submit(granted, store) for store in (harness.store, harness.other))
    (buckets_of_first, rows_of_first), (buckets_of_second, rows_of_second) = first.result(), second.result()
    assert not buckets_of_first & buckets_of_second
    assert (rows_of_first, rows_of_second) == (buckets_of_first, buckets_of_second)


def test_rows_that_another_delivered_since_the_poll_are_not_claimed(harness: Harness) -> None:
    box = harness.make_box()
    first, second = harness.insert(box), harness.insert(box)
    assert {row.bucket for row in harness.store.poll(box, [0], 10)} == {0}
    with harness.other.claims(box).open({0: None}, 1) as claim:
        claim.commit(Settlement(delivered=[first]))
    with harness.store.claims(box).open({0: None}, 10) as claim:
        assert [item.id for item in claim.items] == [second]


def test_an_open_claim_does_not_keep_others_from_other_buckets(harness: Harness, threads: ThreadPoolExecutor) -> None:
    box = harness.make_box()
    held, free = harness.insert(box, bucket=0), harness.insert(box, bucket=1)
    opened, done = Event(), Event()

    def hold() -> list[int]:
        with harness.store.claims(box).open({0: None}, 10) as claim:
            opened.set()
            assert done.wait(PATIENCE)
            return [item.id for item in claim.items]

    def deliver() -> list[int]:
        with harness.other.claims(box).open({1: None}, 10) as claim:
            ids = [item.id for item in claim.items]
            claim.commit(Settlement(delivered=ids))
            return ids

    holder = threads.submit(hold)
    try:
        assert opened.wait(PATIENCE)
        assert threads.submit(deliver).result(PATIENCE) == [free]
        assert harness.statuses(box, held, free) == [0, 2]
    finally:
        done.set()
    assert holder.result(PATIENCE) == [held]


def test_rows_inserted_during_a_claim_wait_for_the_next_one(harness: Harness, threads: ThreadPoolExecutor) -> None:
    box = harness.make_box()
    first = harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        second = threads.submit(harness.insert, box).result(PATIENCE)
        assert [item.id for item in claim.items] == [first]
        claim.commit(Settlement(delivered=[first]))
    with harness.store.claims(box).open({0: first}, 10) as claim:
        assert [item.id for item in claim.items] == [second]


def test_what_a_claim_settled_is_seen_by_the_next_at_once(harness: Harness) -> None:
    box = harness.make_box()
    rows = [harness.insert(box) for _ in range(10)]
    seen = []
    for store in (harness.store, harness.other) * 5:
        with store.claims(box).open({0: None}, 1) as claim:
            seen += [item.id for item in claim.items]
            claim.commit(Settlement(delivered=seen[-1:]))
    assert seen == rows


def test_workers_that_race_deliver_every_row_once_and_each_bucket_in_order(
    harness: Harness, threads: ThreadPoolExecutor
) -> None:
    box = harness.make_box()
    for number in range(60):
        harness.insert(box, bucket=number % box.bucket_size)
    together = Barrier(4)
    journal: list[tuple[int, int]] = []

    def work(store: FullStore) -> None:
        together.wait(PATIENCE)
        while store.outlook(box, box.buckets).due:
            deliver_some(store, box, journal)

    workers = [threads.submit(work, store) for store in (harness.store, harness.other) * 2]
    for worker in workers:
        worker.result(PATIENCE)
    assert set(Counter(journal).values()) == {1}
    assert len(journal) == 60
    for bucket in box.buckets:
        own = [row for row, of_bucket in journal if of_bucket == bucket]
        assert own == sorted(own)
