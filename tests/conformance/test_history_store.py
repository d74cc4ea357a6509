"""What retention, status and metrics ask of a store: SEMANTICS 8, over every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from boxengine.domain.box import Box
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.ports import Swept
from tests.conformance import stores
from tests.conformance.stores import Harness, of_tables

FINISHED = [int(Status.FAILED), int(Status.DELIVERED), int(Status.DISCARDED)]


@pytest.fixture(params=stores.NAMES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


def insert(harness: Harness, box: Box, status: Status, *, hours_ago: float = 0) -> ItemId:
    return harness.insert(box, status=int(status), created_at=harness.ago(hours=hours_ago))


def test_counts_are_by_status_and_box(harness: Harness) -> None:
    box, other = harness.make_box(), harness.make_box()
    for status in (Status.PENDING, Status.PENDING, Status.FAILED, Status.DELIVERED, Status.DISCARDED):
        insert(harness, box, status)
    insert(harness, other, Status.PENDING)
    assert dict(harness.store.counts(box)) == {0: 2, 1: 1, 2: 1, 3: 1}


def test_an_empty_box_has_no_counts_and_no_oldest_row(harness: Harness) -> None:
    box = harness.make_box()
    assert not any(harness.store.counts(box).values())
    assert harness.store.oldest_pending(box) is None
    assert harness.store.oldest_finished(box, FINISHED) is None


def test_the_time_is_that_of_the_database_with_zone_utc(harness: Harness) -> None:
    before, now, after = harness.ago(), harness.store.now(), harness.ago()
    assert before <= now <= after
    assert now.utcoffset() == timedelta(0)


def test_the_oldest_pending_row_is_told_with_zone_utc(harness: Harness) -> None:
    box = harness.make_box()
    insert(harness, box, Status.DELIVERED, hours_ago=9)
    expected = insert(harness, box, Status.PENDING, hours_ago=3)
    insert(harness, box, Status.PENDING, hours_ago=1)
    oldest, row = harness.store.oldest_pending(box), harness.row(box, expected)
    assert oldest is not None
    assert row is not None
    assert (oldest, oldest.utcoffset()) == (row["created_at"], row["created_at"].utcoffset())


@of_tables
def test_a_delayed_row_waits_from_the_moment_on_at_which_it_may_go(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box, created_at=harness.ago(hours=9), available_at=harness.ago(hours=-1))
    assert harness.store.oldest_pending(box) is None
    since = harness.ago(hours=2)
    harness.insert(box, created_at=harness.ago(hours=8), available_at=since)
    assert harness.store.oldest_pending(box) == since
    longer = insert(harness, box, Status.PENDING, hours_ago=3)
    row = harness.row(box, longer)
    assert row is not None
    assert harness.store.oldest_pending(box) == row["created_at"]


def test_pending_rows_in_buckets_that_the_box_does_not_have_are_counted(harness: Harness) -> None:
    box = harness.make_box()
    for bucket in (0, box.bucket_size - 1):
        harness.insert(box, bucket=bucket)
    assert harness.store.stranded_items(box) == 0
    for bucket in (-1, box.bucket_size, box.bucket_size + 7):
        harness.insert(box, bucket=bucket)
    harness.insert(box, bucket=box.bucket_size, status=int(Status.DELIVERED))
    assert harness.store.stranded_items(box) == 3


@of_tables
def test_the_oldest_finished_row_is_of_the_statuses_asked_for(harness: Harness) -> None:
    box = harness.make_box()
    insert(harness, box, Status.PENDING, hours_ago=9)
    insert(harness, box, Status.DELIVERED, hours_ago=8)
    expected = insert(harness, box, Status.FAILED, hours_ago=7)
    insert(harness, box, Status.DISCARDED, hours_ago=6)
    row = harness.row(box, expected)
    assert row is not None
    assert harness.store.oldest_finished(box, [Status.FAILED, Status.DISCARDED]) == row["created_at"]


def test_deletion_takes_the_rows_of_its_statuses_and_span_only(harness: Harness) -> None:
    box = harness.make_box()
    too_old = insert(harness, box, Status.DELIVERED, hours_ago=9)
    inside = [insert(harness, box, Status.DELIVERED, hours_ago=hours) for hours in (7, 6)]
    failed, pending = (insert(harness, box, status, hours_ago=6) for status in (Status.FAILED, Status.PENDING))
    too_new = insert(harness, box, Status.DELIVERED, hours_ago=3)
    deleted = harness.store.delete_finished(
        box,
        [Status.DELIVERED],
        created_from=harness.ago(hours=8),
        created_before=harness.ago(hours=4),
        limit=100,
    )
    assert deleted == 2
    assert harness.statuses(box, *inside) == [None, None]
    assert harness.statuses(box, too_old, failed, pending, too_new) == [2, 1, 0, 2]


@of_tables
def test_a_row_that_was_given_up_counts_from_then_however_long_it_had_waited(harness: Harness) -> None:
    box = harness.make_box()
    waited: dict[str, Any] = {"created_at": harness.ago(hours=9), "errors_count": 1}
    given_up = (Status.FAILED, Status.DISCARDED)
    lately = [
        harness.insert(box, status=int(status), processed_at=harness.ago(hours=1), **waited) for status in given_up
    ]
    long_ago = harness.insert(box, status=int(Status.FAILED), processed_at=harness.ago(hours=5), **waited)
    delivered = harness.insert(box, status=int(Status.DELIVERED), processed_at=harness.ago(hours=1), **waited)
    row = harness.row(box, long_ago)
    assert row is not None
    assert harness.store.oldest_finished(box, given_up) == row["processed_at"]
    span = {"created_from": harness.ago(hours=10), "created_before": harness.ago(hours=4)}
    assert harness.store.delete_finished(box, given_up, **span, limit=10) == 1
    assert harness.store.delete_finished(box, [Status.DELIVERED], **span, limit=10) == 1
    assert harness.statuses(box, *lately, long_ago, delivered) == [1, 3, None, None]


@of_tables
def test_a_sweep_counts_from_when_a_row_was_given_up(harness: Harness) -> None:
    box = harness.make_box()
    waited: dict[str, Any] = {"created_at": harness.ago(hours=9), "errors_count": 1}
    rows: list[ItemId] = []
    for status in FINISHED:
        rows += [
            harness.insert(box, status=status, processed_at=harness.ago(hours=hours), **waited) for hours in (1, 5)
        ]
    before = dict.fromkeys(FINISHED, harness.ago(hours=4))
    assert harness.store.sweep_finished(box, before, after=None, limit=10).deleted == 4
    assert harness.statuses(box, *rows) == [1, None, None, None, 3, None]


@of_tables
def test_the_span_of_a_deletion_has_its_start_and_not_its_end(harness: Harness) -> None:
    box = harness.make_box()
    start, end = harness.ago(hours=2), harness.ago(hours=1)
    at_start, at_end = (harness.insert(box, status=2, created_at=moment) for moment in (start, end))
    assert harness.store.delete_finished(box, [2], created_from=start, created_before=end, limit=100) == 1
    assert harness.statuses(box, at_start, at_end) == [None, 2]


@of_tables
def test_deletion_takes_no_more_rows_than_its_limit(harness: Harness) -> None:
    box = harness.make_box()
    rows = [insert(harness, box, Status.DISCARDED, hours_ago=5) for _ in range(5)]
    span = {"created_from": harness.ago(hours=6), "created_before": harness.ago(hours=4)}
    assert harness.store.delete_finished(box, [Status.DISCARDED], **span, limit=3) == 3
    assert sorted(filter(None, harness.statuses(box, *rows))) == [3, 3]
    assert harness.store.delete_finished(box, [Status.DISCARDED], **span, limit=3) == 2
    assert harness.store.delete_finished(box, [Status.DISCARDED], **span, limit=3) == 0


def test_deletion_does_not_wait_for_an_open_claim(harness: Harness) -> None:
    box = harness.make_box()
    pending = insert(harness, box, Status.PENDING, hours_ago=5)
    insert(harness, box, Status.DELIVERED, hours_ago=5)
    with harness.other.claims(box).open({0: None}, 10) as claim:
        assert [item.id for item in claim.items] == [pending]
        deleted = harness.store.delete_finished(
            box, FINISHED, created_from=harness.ago(hours=6), created_before=harness.ago(hours=4), limit=10
        )
    assert deleted == 1
    assert harness.statuses(box, pending) == [0]


def test_pending_rows_are_never_deleted(harness: Harness) -> None:
    box = harness.make_box()
    pending = insert(harness, box, Status.PENDING, hours_ago=5)
    harness.store.delete_finished(
        box,
        [int(Status.PENDING), *FINISHED],
        created_from=harness.ago(hours=6),
        created_before=harness.ago(hours=4),
        limit=10,
    )
    assert harness.statuses(box, pending) == [0]


@of_tables
def test_a_sweep_deletes_what_is_old_of_each_status_wherever_it_stands(harness: Harness) -> None:
    box = harness.make_box()
    young = insert(harness, box, Status.DELIVERED, hours_ago=1)
    delivered, failed, discarded = (insert(harness, box, Status(status), hours_ago=5) for status in FINISHED)
    kept, pending = insert(harness, box, Status.FAILED, hours_ago=3), insert(harness, box, Status.PENDING, hours_ago=9)
    before = {2: harness.ago(hours=2), 1: harness.ago(hours=4), 3: harness.ago(hours=4), 0: harness.now()}
    assert harness.store.sweep_finished(box, before, after=None, limit=10) == Swept(3, pending)
    assert harness.statuses(box, young, delivered, failed, discarded, kept, pending) == [2, None, None, None, 1, 0]
    assert harness.store.sweep_finished(box, before, after=pending, limit=10) == Swept(0, None)


@of_tables
def test_a_sweep_takes_no_more_than_its_limit_and_only_what_stands_after_an_id(harness: Harness) -> None:
    box = harness.make_box()
    rows = [insert(harness, box, Status.DELIVERED, hours_ago=5) for _ in range(4)]
    before = {2: harness.ago(hours=2)}
    assert harness.store.sweep_finished(box, before, after=rows[0], limit=2).deleted == 2
    assert harness.statuses(box, *rows) == [2, None, None, 2]


@of_tables
def test_a_sweep_does_not_wait_for_a_row_that_somebody_holds(harness: Harness) -> None:
    box = harness.make_box()
    pending, old = (
        insert(harness, box, Status.PENDING, hours_ago=5),
        insert(harness, box, Status.DELIVERED, hours_ago=5),
    )
    with harness.other.claims(box).open({0: None}, 10) as claim:
        assert [item.id for item in claim.items] == [pending]
        swept = harness.store.sweep_finished(box, {2: harness.ago(hours=2)}, after=None, limit=10)
    assert swept == Swept(1, old)
