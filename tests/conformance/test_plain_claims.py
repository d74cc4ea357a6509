"""Plain claims, on boxes that keep nothing: a store may delete such rows as it reads them.

Whatever it does ahead, the rows, the outcomes and what others see are those of any other claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

import pytest

from boxengine.domain.box import Backoff, Box, Retention, StrictOrder
from boxengine.domain.item import Status
from boxengine.domain.item_id import ItemId
from boxengine.domain.outcome import FailedAttempt, Settlement
from boxengine.errors import StoreUnavailable
from boxengine.ports import Claims, PlainClaim
from tests.conformance import stores
from tests.conformance.stores import Harness, of_tables
from tests.conformance.test_claim import overtaken


@pytest.fixture(params=stores.NAMES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


def make_box(harness: Harness, strict_order: StrictOrder = StrictOrder.NONE) -> Box:
    return harness.make_box(
        retention=Retention(delivered=timedelta(0)),
        max_retries=5,
        backoff=Backoff(minimal=timedelta(seconds=60)),
        strict_order=strict_order,
    )


def claimed(claims: Claims[PlainClaim], after: Mapping[int, ItemId | None], limit: int) -> object:
    """All that such a claim says, but for the moment at which it was made; nothing comes of it."""
    with claims.open(after, limit) as claim:
        items = [item._replace(dispatched_at=item.created_at) for item in claim.items]
        return items, claim.exhausted, claim.refused


@pytest.mark.parametrize("strict_order", StrictOrder)
def test_they_hold_what_any_claim_holds(harness: Harness, strict_order: StrictOrder) -> None:
    box = make_box(harness, strict_order)
    recently, long_ago = harness.ago(seconds=5), harness.ago(hours=3)
    firsts = {}
    for bucket in box.buckets:
        firsts[bucket] = harness.insert(box, bucket=bucket, event_key="a", payload=b"\x00\xff", options={"n": bucket})
        harness.insert(box, bucket=bucket, event_key="b", errors_count=1, processed_at=long_ago)
        if bucket % 2:
            harness.insert(box, bucket=bucket, event_key="c", errors_count=1, processed_at=recently)
        for key in "abc":
            harness.insert(box, bucket=bucket, event_key=key)
    with harness.other.claims(box).open({0: None}, 1):
        for after, limit in (
            (dict.fromkeys(box.buckets), 100),
            (dict.fromkeys(box.buckets), 5),
            (dict.fromkeys(box.buckets), 2),
            ({1: firsts[1]}, 100),
            ({3: firsts[3]}, 100),
            ({}, 100),
        ):
            usual = claimed(harness.store.claims(box), after, limit)
            ahead = claimed(harness.store.plain_claims(box), after, limit)
            assert ahead == usual


@of_tables
def test_what_they_deliver_is_gone(harness: Harness) -> None:
    box = make_box(harness)
    rows = [harness.insert(box, bucket=bucket) for bucket in (0, 1, 1)]
    other = harness.insert(box, bucket=2)
    with harness.store.plain_claims(box).open({0: None, 1: None}, 10) as claim:
        assert harness.statuses(box, *rows) == [0, 0, 0]
        claim.commit(Settlement(delivered=[item.id for item in claim.items]))
    assert harness.statuses(box, *rows, other) == [None, None, None, 0]


@of_tables
def test_what_did_not_go_out_is_as_after_any_claim(harness: Harness) -> None:
    box = make_box(harness)
    delivered, discarded, retried, failed, untouched = (harness.insert(box) for _ in range(5))
    before = harness.row(box, untouched)
    with harness.store.plain_claims(box).open({0: None}, 10) as claim:
        attempts = [
            FailedAttempt(retried, Status.PENDING, 1, "timeout"),
            FailedAttempt(failed, Status.FAILED, 6, "gone"),
        ]
        claim.commit(Settlement(delivered=[delivered], discarded=[overtaken(discarded)], failed=attempts))
    assert harness.statuses(box, delivered, discarded, retried, failed, untouched) == [None, 3, 0, 1, 0]
    row = harness.row(box, retried)
    assert row is not None
    assert (row["errors_count"], row["error_log"]) == (1, "timeout")
    assert harness.row(box, untouched) == before
    with harness.other.plain_claims(box).open({0: None}, 10) as again:
        assert [item.id for item in again.items] == [untouched]


@of_tables
def test_rows_beyond_the_limit_stay(harness: Harness) -> None:
    box = make_box(harness)
    rows = [harness.insert(box, bucket=bucket) for bucket in box.buckets]
    with harness.store.plain_claims(box).open(dict.fromkeys(box.buckets), 2) as claim:
        claim.commit(Settlement(delivered=[item.id for item in claim.items]))
    assert harness.statuses(box, *rows) == [None, None, 0, 0]


@pytest.mark.parametrize("settlement", [None, Settlement()])
def test_where_nothing_comes_of_them_nothing_is_gone(harness: Harness, settlement: Settlement | None) -> None:
    box = make_box(harness)
    row = harness.insert(box)
    before = harness.row(box, row)
    with harness.store.plain_claims(box).open({0: None}, 10) as claim:
        if settlement is not None:
            claim.commit(settlement)
    assert harness.row(box, row) == before
    with harness.other.claims(box).open({0: None}, 10) as again:
        assert [item.id for item in again.items] == [row]


def test_over_a_lost_connection_nothing_is_gone(harness: Harness) -> None:
    box = make_box(harness)
    row = harness.insert(box)

    def settle_over_a_lost_connection() -> None:
        with harness.store.plain_claims(box).open({0: None}, 10) as claim:
            harness.break_open_claims()
            claim.commit(Settlement(delivered=[row]))

    with pytest.raises(StoreUnavailable):
        settle_over_a_lost_connection()
    assert harness.statuses(box, row) == [0]
