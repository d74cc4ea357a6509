"""Which rows are due, and how a poll shares them out: SEMANTICS 2, 4, 6 and 7, over every store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest

from boxengine.domain.box import Backoff, Box, Storage, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from tests.conformance import stores
from tests.conformance.stores import Harness, of_tables

PAUSE = Backoff(minimal=timedelta(seconds=60), maximal=timedelta(seconds=600), multiplier=2.0)
ALL_BUCKETS = range(4)
LATER = -3600
"""Seconds ago, so an hour from now."""


@pytest.fixture(params=stores.NAMES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


def due(harness: Harness, box: Box, *, buckets: Sequence[int] = ALL_BUCKETS, limit: int = 100) -> list[int]:
    """Ids that a claim finds; a poll and the outlook must agree with it. Of a log's rows a poll names only the buckets."""
    found = harness.store.poll(box, buckets, limit)
    assert set(harness.store.outlook(box, buckets).due) == {row.bucket for row in found}
    with harness.store.claims(box).open(dict.fromkeys(buckets), limit) as claim:
        ids = sorted(item.id for item in claim.items)
    if harness.storage is Storage.TABLE:
        assert [row.id for row in found] == ids
    else:
        assert {row.bucket for row in found} >= {item.bucket for item in claim.items}
    return ids


def insert_tried(harness: Harness, box: Box, *, seconds_ago: float, errors: int = 1, key: str = "k") -> ItemId:
    return harness.insert(box, event_key=key, errors_count=errors, processed_at=harness.ago(seconds=seconds_ago))


# ── due ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_store_answers_a_ping(harness: Harness) -> None:
    harness.make_box()
    harness.store.ping()


def test_an_empty_table_has_nothing_due(harness: Harness) -> None:
    assert due(harness, harness.make_box()) == []


def test_a_fresh_row_is_due(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box, bucket=2)
    assert due(harness, box) == [row]
    assert harness.store.poll(box, [2], 10) == [(row, 2, 0)]


@of_tables
@pytest.mark.parametrize("status", [Status.FAILED, Status.DELIVERED, Status.DISCARDED])
def test_a_finished_row_is_not_due(harness: Harness, status: Status) -> None:
    box = harness.make_box()
    harness.insert(box, status=int(status))
    assert due(harness, box) == []


def test_rows_of_other_buckets_are_not_polled(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box, bucket=0)
    wanted = harness.insert(box, bucket=3)
    assert due(harness, box, buckets=[1, 3]) == [wanted]


def test_rows_of_other_boxes_are_not_polled(harness: Harness) -> None:
    box, other = harness.make_box(), harness.make_box()
    harness.insert(other)
    assert due(harness, box) == []


@of_tables
def test_a_row_is_not_due_before_its_available_at(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box, available_at=harness.ago(seconds=LATER))
    assert due(harness, box) == []


@of_tables
def test_a_row_is_due_after_its_available_at(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box, available_at=harness.ago(seconds=1))
    assert due(harness, box) == [row]


@of_tables
def test_a_failed_attempt_is_not_due_during_its_pause(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=PAUSE)
    insert_tried(harness, box, seconds_ago=30)
    assert due(harness, box) == []


@of_tables
def test_a_failed_attempt_is_due_after_its_pause(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=PAUSE)
    row = insert_tried(harness, box, seconds_ago=61)
    assert due(harness, box) == [row]


@of_tables
def test_a_failed_attempt_becomes_due_as_it_ages(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=PAUSE)
    row = insert_tried(harness, box, seconds_ago=0)
    assert due(harness, box) == []
    harness.set_row(box, row, processed_at=harness.ago(seconds=90))
    assert due(harness, box) == [row]


@of_tables
def test_pauses_grow_with_the_errors(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=PAUSE)
    insert_tried(harness, box, seconds_ago=200, errors=3)
    over = insert_tried(harness, box, seconds_ago=250, errors=3)
    assert due(harness, box) == [over]


@of_tables
def test_pauses_do_not_grow_past_the_maximum(harness: Harness) -> None:
    box = harness.make_box(max_retries=None, backoff=PAUSE)
    insert_tried(harness, box, seconds_ago=590, errors=5000)
    over = insert_tried(harness, box, seconds_ago=610, errors=5000)
    assert due(harness, box) == [over]


@pytest.mark.parametrize("strict", list(StrictOrder))
def test_a_row_tried_before_that_has_no_failed_attempts_is_due_at_once(harness: Harness, strict: StrictOrder) -> None:
    """A retry by hand leaves such rows; they hold nobody back either."""
    box = harness.make_box(max_retries=None, backoff=PAUSE, strict_order=strict)
    moment = harness.now() + timedelta(minutes=1)  # as after a clock that went back
    rows = [harness.insert(box, errors_count=0, processed_at=moment), harness.insert(box)]
    assert due(harness, box) == rows


@of_tables
def test_without_a_backoff_a_failed_attempt_is_due_at_once(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=None)
    row = insert_tried(harness, box, seconds_ago=0)
    assert due(harness, box) == [row]


@of_tables
def test_a_row_processed_without_errors_has_no_pause(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=PAUSE)
    row = insert_tried(harness, box, seconds_ago=0, errors=0)
    assert due(harness, box) == [row]


@of_tables
def test_jitter_only_shortens_a_pause(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=Backoff(minimal=timedelta(seconds=100), jitter=0.5))
    within = [insert_tried(harness, box, seconds_ago=45) for _ in range(20)]
    over = [insert_tried(harness, box, seconds_ago=105) for _ in range(20)]
    found = due(harness, box)
    assert not set(found) & set(within)
    assert found == over


@of_tables
def test_jitter_shortens_by_the_part_that_follows_from_the_id(harness: Harness) -> None:
    backoff = Backoff(minimal=timedelta(seconds=100), jitter=1.0)
    box = harness.make_box(max_retries=5, backoff=backoff)
    rows = [insert_tried(harness, box, seconds_ago=50.05) for _ in range(20)]
    expected = [row for row in rows if backoff.pause(1, row) <= timedelta(seconds=50.05)]
    assert due(harness, box) == expected
    assert 0 < len(expected) < 20


@of_tables
@pytest.mark.parametrize("order", list(StrictOrder))
def test_the_outlook_tells_when_the_first_delayed_row_comes_due(harness: Harness, order: StrictOrder) -> None:
    box = harness.make_box(strict_order=order, max_retries=None, backoff=PAUSE)
    insert_tried(harness, box, seconds_ago=0)
    assert harness.store.outlook(box, ALL_BUCKETS).next_in is None
    harness.insert(box, bucket=1, available_at=harness.ago(seconds=-7200))
    harness.insert(box, bucket=2, available_at=harness.ago(seconds=LATER))
    harness.insert(box, bucket=3, available_at=harness.ago(seconds=60))
    harness.insert(box, bucket=3, available_at=harness.ago(seconds=-1800), status=int(Status.DISCARDED))
    due, next_in = harness.store.outlook(box, ALL_BUCKETS)
    assert due == [3]
    assert next_in is not None
    assert timedelta(seconds=3000) < next_in <= timedelta(seconds=3600)


@of_tables
def test_the_outlook_of_another_box_is_its_own(harness: Harness) -> None:
    box, other = harness.make_box(), harness.make_box()
    harness.insert(other, available_at=harness.ago(seconds=LATER))
    assert harness.store.outlook(box, ALL_BUCKETS) == ([], None)


def test_of_many_boxes_those_with_pending_rows_are_named_whatever_these_wait_for(harness: Harness) -> None:
    boxes = [harness.make_box() for _ in range(5)]
    assert harness.store.pending(boxes) == frozenset()
    assert harness.store.pending([]) == frozenset()
    harness.insert(boxes[1])
    harness.insert(boxes[2], available_at=harness.ago(seconds=LATER))
    harness.insert(boxes[3], status=Status.DELIVERED)
    harness.insert(boxes[4], status=Status.FAILED)
    assert harness.store.pending(boxes) == {boxes[1].name, boxes[2].name}
    assert harness.store.pending(boxes[2:]) == {boxes[2].name}


# ── order ────────────────────────────────────────────────────────────────────────────────────────────


def test_without_strict_order_a_row_that_waits_is_stepped_over(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=PAUSE)
    insert_tried(harness, box, seconds_ago=0)
    follower = harness.insert(box)
    assert due(harness, box) == [follower]


def test_without_strict_order_a_failed_row_holds_nobody_back(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box, status=int(Status.FAILED))
    follower = harness.insert(box)
    assert due(harness, box) == [follower]


@pytest.mark.parametrize("reason", ["pause", "available_at"])
def test_strict_by_bucket_a_head_that_waits_holds_back_its_bucket(harness: Harness, reason: str) -> None:
    box = harness.make_box(strict_order=StrictOrder.BUCKET, max_retries=None, backoff=PAUSE)
    if reason == "pause":
        insert_tried(harness, box, seconds_ago=0)
    else:
        harness.insert(box, available_at=harness.ago(seconds=LATER))
    harness.insert(box, event_key="another")
    elsewhere = harness.insert(box, bucket=1)
    assert due(harness, box) == [elsewhere]


@of_tables
def test_strict_by_bucket_rows_before_the_one_that_waits_are_due(harness: Harness) -> None:
    box = harness.make_box(strict_order=StrictOrder.BUCKET, max_retries=None, backoff=PAUSE)
    first = harness.insert(box)
    insert_tried(harness, box, seconds_ago=0)
    harness.insert(box)
    assert due(harness, box) == [first]


def test_strict_by_bucket_followers_are_due_once_the_head_is(harness: Harness) -> None:
    box = harness.make_box(strict_order=StrictOrder.BUCKET, max_retries=None, backoff=PAUSE)
    head = insert_tried(harness, box, seconds_ago=70)
    follower = harness.insert(box)
    assert due(harness, box) == [head, follower]


@pytest.mark.parametrize("status", [Status.DELIVERED, Status.DISCARDED])
@pytest.mark.parametrize("order", list(StrictOrder))
def test_delivered_and_discarded_rows_hold_nobody_back(harness: Harness, order: StrictOrder, status: Status) -> None:
    box = harness.make_box(strict_order=order, max_retries=None, backoff=PAUSE)
    harness.insert(box, status=int(status), errors_count=1, processed_at=harness.now())
    follower = harness.insert(box)
    assert due(harness, box) == [follower]


@pytest.mark.parametrize("reason", ["pause", "available_at"])
def test_strict_by_key_a_row_that_waits_holds_back_only_its_key(harness: Harness, reason: str) -> None:
    box = harness.make_box(strict_order=StrictOrder.KEY, max_retries=5, backoff=PAUSE)
    if reason == "pause":
        insert_tried(harness, box, seconds_ago=0, key="a")
    else:
        harness.insert(box, event_key="a", available_at=harness.ago(seconds=LATER))
    harness.insert(box, event_key="a")
    other = harness.insert(box, event_key="b")
    assert due(harness, box) == [other]


def test_strict_by_key_a_failed_row_parks_its_key(harness: Harness) -> None:
    box = harness.make_box(strict_order=StrictOrder.KEY, max_retries=1, backoff=PAUSE)
    harness.insert(box, event_key="a", status=int(Status.FAILED), errors_count=2, processed_at=harness.ago(days=1))
    harness.insert(box, event_key="a")
    other = harness.insert(box, event_key="b")
    assert due(harness, box) == [other]


@pytest.mark.parametrize("status", [Status.PENDING, Status.DISCARDED])
def test_a_parked_key_goes_on_when_its_failed_row_is_retried_or_discarded(harness: Harness, status: Status) -> None:
    box = harness.make_box(strict_order=StrictOrder.KEY, max_retries=1, backoff=PAUSE)
    failed = harness.insert(box, status=int(Status.FAILED), errors_count=2, processed_at=harness.now())
    follower = harness.insert(box)
    assert due(harness, box) == []
    harness.set_row(box, failed, status=int(status), errors_count=0)
    assert due(harness, box) == ([failed, follower] if status is Status.PENDING else [follower])


@of_tables
def test_strict_by_key_a_row_holds_back_later_ones_only(harness: Harness) -> None:
    box = harness.make_box(strict_order=StrictOrder.KEY, max_retries=1, backoff=PAUSE)
    earlier = harness.insert(box)
    harness.insert(box, status=int(Status.FAILED), errors_count=2)
    assert due(harness, box) == [earlier]


def test_strict_by_key_due_rows_of_one_key_come_together(harness: Harness) -> None:
    box = harness.make_box(strict_order=StrictOrder.KEY, max_retries=5, backoff=PAUSE)
    head = insert_tried(harness, box, seconds_ago=70)
    followers = [harness.insert(box) for _ in range(2)]
    assert due(harness, box) == [head, *followers]


# ── polling ──────────────────────────────────────────────────────────────────────────────────────────


@of_tables
def test_a_poll_is_in_id_order_across_buckets(harness: Harness) -> None:
    box = harness.make_box()
    rows = [harness.insert(box, bucket=bucket) for bucket in (3, 0, 2, 0, 3, 1)]
    assert [row.id for row in harness.store.poll(box, [2, 3, 0, 1], 100)] == rows


@of_tables
def test_a_poll_gives_each_bucket_its_fair_share(harness: Harness) -> None:
    box = harness.make_box()
    crowd = [harness.insert(box, bucket=0) for _ in range(10)]
    lone = harness.insert(box, bucket=3)
    assert [row.id for row in harness.store.poll(box, ALL_BUCKETS, 8)] == [*crowd[:2], lone]


@of_tables
def test_a_poll_with_fewer_rows_than_buckets_gives_each_bucket_one(harness: Harness) -> None:
    box = harness.make_box()
    first = [harness.insert(box, bucket=bucket) for bucket in ALL_BUCKETS]
    harness.insert(box, bucket=0)
    assert [row.id for row in harness.store.poll(box, ALL_BUCKETS, 2)] == first


@of_tables
def test_a_poll_of_regular_rows_leaves_out_those_that_failed_before(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=None)
    for _ in range(3):
        insert_tried(harness, box, seconds_ago=10)
    fresh = harness.insert(box)
    assert [row.id for row in harness.store.poll_regular(box, [0], 2)] == [fresh]


@of_tables
@pytest.mark.parametrize("order", [StrictOrder.BUCKET, StrictOrder.KEY])
def test_a_poll_of_regular_rows_finds_none_that_strict_order_holds_back(harness: Harness, order: StrictOrder) -> None:
    box = harness.make_box(strict_order=order, max_retries=None, backoff=PAUSE)
    insert_tried(harness, box, seconds_ago=0)
    harness.insert(box)
    assert harness.store.poll_regular(box, [0], 10) == []


@of_tables
def test_a_poll_tells_the_errors_of_each_row(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=None)
    row = insert_tried(harness, box, seconds_ago=0, errors=3)
    assert harness.store.poll(box, [0], 10) == [(row, 0, 3)]


def test_a_poll_takes_no_locks(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        assert [item.id for item in claim.items] == [row]
        assert [found.id for found in harness.other.poll(box, [0], 10)] == [row]


def test_a_poll_of_no_buckets_finds_nothing(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box)
    assert harness.store.poll(box, [], 10) == []
    assert harness.store.outlook(box, []) == ([], None)
