"""What a claim holds and what its settlement writes: SEMANTICS 2, 5 and 7, over every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest

from boxengine.domain.box import Backoff, Retention, StrictOrder
from boxengine.domain.item import REPLAY_OF, Status, rfc3339
from boxengine.domain.outcome import Discard, DiscardCause, FailedAttempt, Settlement
from boxengine.errors import StoreUnavailable
from boxengine.ports import Claim
from tests.conformance import stores
from tests.conformance.stores import Harness, of_tables

PAUSE = Backoff(minimal=timedelta(seconds=60))
AWAY_AT_ONCE = Retention(delivered=timedelta(0))


@pytest.fixture(params=[*stores.NAMES, stores.INBOX_LOG])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    with stores.open_harness(request.param, request) as opened:
        yield opened


def overtaken(row: int) -> Discard:
    """What a claim's settlement has of a discarded row."""
    return Discard(row, DiscardCause.OVERTAKEN, 0, "overtaken by 9")


def write_and_fail(harness: Harness, claim: Claim, text: str) -> None:
    """What a handler does that breaks in the middle of its work."""
    with claim.savepoint():
        harness.add_effect(claim.session, text)
        raise ZeroDivisionError


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────


def test_an_item_carries_what_its_row_has(harness: Harness) -> None:
    box = harness.make_box()
    uuid, created = UUID(int=7), harness.ago(minutes=5)
    row = harness.insert(
        box,
        event_key="order-9",
        bucket=1,
        uuid=str(uuid),
        event_name="order_created",
        payload=b"\x00\xff",
        options={"headers": {"x": "y"}, "n": 1},
        created_at=created,
    )
    with harness.store.claims(box).open({1: None}, 10) as claim:
        (item,) = claim.items
    assert (item.id, str(item.uuid), item.event_name, item.event_key) == (row, str(uuid), "order_created", "order-9")
    assert (item.bucket, item.status, item.errors_count, item.processed_at) == (1, Status.PENDING, 0, None)
    assert (bytes(item.payload), item.options) == (b"\x00\xff", {"headers": {"x": "y"}, "n": 1})
    assert item.headers["x"] == "y"
    assert rfc3339(item.created_at) == rfc3339(created)
    assert (item.box, item.dispatched_at) == (box, claim.now)


def test_an_item_without_options_and_event_name_has_none(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        assert [(item.options, item.event_name) for item in claim.items] == [({}, None)]


def test_a_claim_tells_the_stores_clock_with_its_zone(harness: Harness) -> None:
    box = harness.make_box()
    before = harness.now()
    with harness.store.claims(box).open({0: None}, 10) as claim:
        assert claim.now.utcoffset() == timedelta(0)
        assert before <= claim.now <= harness.now()


def test_a_claim_reads_each_buckets_rows_in_id_order(harness: Harness) -> None:
    box = harness.make_box()
    rows = [(harness.insert(box, bucket=bucket), bucket) for bucket in (3, 0, 3, 0, 3)]
    with harness.store.claims(box).open({3: None, 0: None}, 10) as claim:
        for bucket in (0, 3):
            own = [item.id for item in claim.items if item.bucket == bucket]
            assert own == [row for row, of_bucket in rows if of_bucket == bucket]


def test_a_claim_gives_each_bucket_its_share_of_the_limit(harness: Harness) -> None:
    box = harness.make_box()
    crowd = [harness.insert(box, bucket=0) for _ in range(6)]
    lone = harness.insert(box, bucket=1)
    with harness.store.claims(box).open({0: None, 1: None}, 6) as claim:
        assert sorted(item.id for item in claim.items) == [*crowd[:3], lone]


def test_a_refused_bucket_has_no_share_of_the_limit(harness: Harness) -> None:
    box = harness.make_box()
    rows = [harness.insert(box, bucket=0) for _ in range(4)]
    with (
        harness.other.claims(box).open({1: None}, 10),
        harness.store.claims(box).open({0: None, 1: None}, 4) as claim,
    ):
        assert [item.id for item in claim.items] == rows


def test_a_claim_never_holds_more_rows_than_its_limit(harness: Harness) -> None:
    box = harness.make_box()
    rows = [harness.insert(box, bucket=bucket) for bucket in range(4)]
    with harness.store.claims(box).open(dict.fromkeys(range(4)), 3) as claim:
        assert len(claim.items) == 3
        assert {item.id for item in claim.items} < set(rows)


def test_a_bucket_that_gave_less_than_its_share_is_exhausted(harness: Harness) -> None:
    box = harness.make_box()
    for bucket in (0, 0, 0, 1):
        harness.insert(box, bucket=bucket)
    with harness.store.claims(box).open({0: None, 1: None, 2: None}, 6) as claim:
        assert claim.exhausted == {1, 2}


def test_a_bucket_that_strict_order_holds_back_is_exhausted(harness: Harness) -> None:
    box = harness.make_box(strict_order=StrictOrder.BUCKET, max_retries=None, backoff=PAUSE)
    harness.insert(box, errors_count=1, processed_at=harness.now())
    for _ in range(5):
        harness.insert(box)
    with harness.store.claims(box).open({0: None}, 2) as claim:
        assert not claim.items
        assert claim.exhausted == {0}


@of_tables
def test_a_claim_reads_after_the_id_given_for_each_bucket(harness: Harness) -> None:
    box = harness.make_box()
    first, second, third = (harness.insert(box, bucket=bucket) for bucket in (0, 0, 1))
    with harness.store.claims(box).open({0: first, 1: None}, 10) as claim:
        assert sorted(item.id for item in claim.items) == [second, third]


@pytest.mark.parametrize("order", [StrictOrder.BUCKET, StrictOrder.KEY])
def test_a_row_that_waits_holds_others_back_though_the_claim_reads_after_it(
    harness: Harness, order: StrictOrder
) -> None:
    box = harness.make_box(strict_order=order, max_retries=None, backoff=PAUSE)
    head = harness.insert(box)
    harness.insert(box)
    with harness.store.claims(box).open({0: None}, 1) as claim:
        claim.commit(Settlement(failed=[FailedAttempt(head, Status.PENDING, 1, "down")]))
    with harness.store.claims(box).open({0: head}, 10) as claim:
        assert list(claim.items) == []


def test_a_claim_of_no_buckets_holds_nothing(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box)
    with harness.store.claims(box).open({}, 10) as claim:
        assert (list(claim.items), claim.refused, claim.exhausted) == ([], frozenset(), frozenset())


# ── settling ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_writes_every_kind_of_outcome(harness: Harness) -> None:
    box = harness.make_box(max_retries=5)
    delivered, discarded, retried, failed, untouched = (harness.insert(box) for _ in range(5))
    with harness.store.claims(box).open({0: None}, 10) as claim:
        claim.commit(
            Settlement(
                delivered=[delivered],
                discarded=[overtaken(discarded)],
                failed=[
                    FailedAttempt(retried, Status.PENDING, 1, "timeout"),
                    FailedAttempt(failed, Status.FAILED, 6, "gone"),
                ],
            )
        )
    assert harness.statuses(box, delivered, discarded, retried, failed, untouched) == [2, 3, 0, 1, 0]
    logs = {discarded: "overtaken by 9", retried: "timeout", failed: "gone"}
    for row, errors in ((discarded, 0), (retried, 1), (failed, 6)):
        written = harness.row(box, row)
        assert written is not None
        assert (written["errors_count"], written["error_log"]) == (errors, logs[row])
        assert claim.now <= written["processed_at"] <= harness.now()
        assert claim.now <= written["updated_at"] <= harness.now()


@of_tables
def test_a_commit_writes_when_a_row_was_delivered_and_leaves_others_untouched(harness: Harness) -> None:
    box = harness.make_box(max_retries=5)
    old = harness.ago(hours=1)
    delivered, untouched = (harness.insert(box, updated_at=old) for _ in range(2))
    with harness.store.claims(box).open({0: None}, 10) as claim:
        claim.commit(Settlement(delivered=[delivered]))
    written, left = harness.row(box, delivered), harness.row(box, untouched)
    assert written is not None
    assert (written["errors_count"], written["error_log"]) == (0, None)
    assert claim.now <= written["processed_at"] <= harness.now()
    assert claim.now <= written["updated_at"] <= harness.now()
    assert left is not None
    assert (left["processed_at"], left["updated_at"]) == (None, old)


def test_a_failed_attempt_replaces_the_error_log(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=None)
    row = harness.insert(box, errors_count=1, error_log="old", processed_at=harness.ago(hours=1))
    with harness.store.claims(box).open({0: None}, 10) as claim:
        claim.commit(Settlement(failed=[FailedAttempt(row, Status.PENDING, 2, "new")]))
    written = harness.row(box, row)
    assert written is not None
    assert (written["errors_count"], written["error_log"]) == (2, "new")


def test_a_discard_says_why_above_the_log_of_the_last_failure(harness: Harness) -> None:
    box = harness.make_box(max_retries=5, backoff=None)
    row = harness.insert(box, errors_count=2, error_log="old: " + "x" * 60_000, processed_at=harness.ago(hours=1))
    with harness.store.claims(box).open({0: None}, 10) as claim:
        claim.commit(Settlement(discarded=[Discard(row, DiscardCause.OVERTAKEN, 2, "overtaken by 9")]))
    written = harness.row(box, row)
    assert written is not None
    assert (written["status"], written["errors_count"]) == (3, 2)
    assert written["error_log"].startswith("overtaken by 9\nold: xxx")


@of_tables
def test_delivered_rows_are_deleted_where_retention_is_zero(harness: Harness) -> None:
    box = harness.make_box(retention=AWAY_AT_ONCE)
    delivered, discarded, failed = (harness.insert(box) for _ in range(3))
    with harness.store.claims(box).open({0: None}, 10) as claim:
        attempt = FailedAttempt(failed, Status.FAILED, 1, "down")
        claim.commit(Settlement(delivered=[delivered], discarded=[overtaken(discarded)], failed=[attempt]))
    assert harness.statuses(box, delivered, discarded, failed) == [None, 3, 1]


def test_an_empty_settlement_changes_nothing_and_frees_the_buckets(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box)
    before = harness.row(box, row)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        claim.commit(Settlement())
    assert harness.row(box, row) == before
    with harness.other.claims(box).open({0: None}, 10) as again:
        assert [item.id for item in again.items] == [row]


def test_leaving_without_a_commit_undoes_everything(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        harness.add_effect(claim.session, "written")
    assert (harness.statuses(box, row), harness.effects()) == ([0], [])
    with harness.other.claims(box).open({0: None}, 10) as again:
        assert [item.id for item in again.items] == [row]


def test_an_error_inside_a_claim_reaches_the_caller_and_frees_the_buckets(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box)
    with pytest.raises(ZeroDivisionError), harness.store.claims(box).open({0: None}, 10):
        raise ZeroDivisionError
    with harness.other.claims(box).open({0: None}, 10) as again:
        assert (len(again.items), again.refused) == (1, frozenset())


def test_a_commit_over_a_lost_connection_is_unavailable_and_writes_nothing(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box)

    def settle_over_a_lost_connection() -> None:
        with harness.store.claims(box).open({0: None}, 10) as claim:
            harness.add_effect(claim.session, "written")
            harness.break_open_claims()
            claim.commit(Settlement(delivered=[row]))

    with pytest.raises(StoreUnavailable):
        settle_over_a_lost_connection()
    assert (harness.statuses(box, row), harness.effects()) == ([0], [])
    with harness.other.claims(box).open({0: None}, 10) as again:
        assert [item.id for item in again.items] == [row]


# ── round items that wait for a receiver ─────────────────────────────────────────────────────────────


@of_tables
@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("strict_order", "also_paused"), [(StrictOrder.NONE, set()), (StrictOrder.KEY, {"paused"})])
def test_keys_with_an_earlier_item_that_waits_are_told(
    harness: Harness, strict_order: StrictOrder, also_paused: set[str], *, plain: bool
) -> None:
    """Where order is not strict, an item that waits for its next attempt holds back nobody."""
    box = harness.make_box(max_retries=5, backoff=Backoff(minimal=timedelta(hours=1)), strict_order=strict_order)
    harness.insert(box, event_key="waits")
    harness.insert(box, event_key="paused", errors_count=1, processed_at=harness.ago(seconds=5))
    harness.insert(box, event_key="delivered", status=int(Status.DELIVERED))
    harness.insert(box, event_key="elsewhere", bucket=1)
    last = harness.insert(box, event_key="another")
    names = ("waits", "paused", "delivered", "elsewhere", "behind")
    behind = {name: harness.insert(box, event_key=name) for name in names}
    harness.insert(box, event_key="behind")
    claims = harness.store.plain_claims(box) if plain else harness.store.claims(box)
    with claims.open({0: last}, 20) as claim:
        assert {item.id for item in claim.items} >= {behind[name] for name in names if name not in also_paused}
        any_item = claim.items[0]
        items = [any_item._replace(id=row_id, event_key=name) for name, row_id in behind.items()]
        assert set(claim.waiting_keys(items, {0: last})) == {"waits", *also_paused}
        assert set(claim.waiting_keys(items, {1: last})) == set()


def test_an_item_that_steps_aside_stays_pending_and_lets_those_behind_it_go(harness: Harness) -> None:
    box = harness.make_box()
    first, second, third = (harness.insert(box, event_key=key) for key in "abc")
    with harness.store.claims(box).open({0: None}, 2) as claim:
        assert [item.id for item in claim.items] == [first, second]
        claim.commit(Settlement(aside=[first, second]))
    assert harness.statuses(box, first, second, third) == [Status.PENDING] * 3
    with harness.store.claims(box).open({0: second}, 2) as claim:
        assert [item.id for item in claim.items] == [third]
        claim.commit(Settlement(delivered=[third]))
    with harness.store.claims(box).open({0: None}, 3) as claim:
        assert [item.id for item in claim.items] == [first, second]
        assert {item.errors_count for item in claim.items} == {0}


def test_only_the_first_items_of_a_bucket_step_aside_without_those_behind(harness: Harness) -> None:
    box = harness.make_box()
    first, second = (harness.insert(box, event_key=key) for key in "ab")
    with harness.store.claims(box).open({0: None}, 10) as claim:
        claim.commit(Settlement(aside=[second]))
    with harness.store.claims(box).open({0: None}, 1) as claim:
        assert [item.id for item in claim.items] == [first]
    assert harness.statuses(box, first, second) == [Status.PENDING] * 2


# ── what transports and strategies ask ───────────────────────────────────────────────────────────────


@of_tables
def test_a_later_delivered_item_of_the_key_and_event_is_seen(harness: Harness) -> None:
    box = harness.make_box(max_retries=5)
    overtaken = harness.insert(box, event_key="a", event_name="changed")
    unnamed = harness.insert(box, event_key="b")
    later = harness.insert(box, event_key="a", event_name="changed", status=int(Status.DELIVERED))
    also_later = harness.insert(box, event_key="b", status=int(Status.DELIVERED))
    with harness.store.claims(box).open({0: None}, 10) as claim:
        assert claim.later_delivered(claim.items) == {overtaken: later, unnamed: also_later}


@of_tables
@pytest.mark.parametrize(
    ("key", "event", "status"),
    [
        ("other", "changed", Status.DELIVERED),
        ("a", "other", Status.DELIVERED),
        ("a", None, Status.DELIVERED),
        ("a", "changed", Status.PENDING),
        ("a", "changed", Status.FAILED),
        ("a", "changed", Status.DISCARDED),
    ],
)
def test_a_later_item_of_another_kind_overtakes_nobody(
    harness: Harness, key: str, event: str | None, status: Status
) -> None:
    box = harness.make_box(max_retries=5)
    row = harness.insert(box, event_key="a", event_name="changed")
    harness.insert(box, event_key=key, event_name=event, status=int(status))
    with harness.store.claims(box).open({0: None}, 1) as claim:
        assert [item.id for item in claim.items] == [row]
        assert claim.later_delivered(claim.items) == {}


@of_tables
def test_an_earlier_delivered_item_overtakes_nobody(harness: Harness) -> None:
    box = harness.make_box(max_retries=5)
    harness.insert(box, status=int(Status.DELIVERED))
    harness.insert(box)
    with harness.store.claims(box).open({0: None}, 1) as claim:
        assert claim.later_delivered(claim.items) == {}
        assert claim.later_delivered([]) == {}


@of_tables
def test_a_copy_that_a_replay_has_made_overtakes_nobody(harness: Harness) -> None:
    box = harness.make_box(max_retries=5)
    row = harness.insert(box)
    copied = {"headers": {REPLAY_OF: "0b8b0e3c-7a0d-4b7e-8a36-5d9e0e9e4a11"}}
    harness.insert(box, options=copied, status=int(Status.DELIVERED))
    with harness.store.claims(box).open({0: None}, 1) as claim:
        assert claim.later_delivered(claim.items) == {}
    again = "6f5d8f0e-53a3-4a55-9a0c-7c1c6a3b1a22"
    later = harness.insert(box, uuid=again, options={"headers": {REPLAY_OF: again}}, status=int(Status.DELIVERED))
    with harness.store.claims(box).open({0: None}, 1) as claim:
        assert claim.later_delivered(claim.items) == {row: later}, "one that went out again itself is as new as it was"


def test_what_a_session_wrote_commits_with_the_outcomes(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        harness.add_effect(claim.session, "written")
        assert harness.effects() == []
        claim.commit(Settlement(delivered=[row]))
    assert (harness.effects(), harness.statuses(box, row)) == (["written"], [2])


def test_what_a_savepoint_keeps_is_not_committed_before_the_claim(harness: Harness) -> None:
    box = harness.make_box()
    harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        with claim.savepoint():
            harness.add_effect(claim.session, "written")
        assert harness.effects() == []
        with harness.other.claims(box).open({0: None}, 10) as second:
            assert second.refused == {0}
    assert harness.effects() == []


def test_a_savepoint_undoes_only_what_was_written_inside_it(harness: Harness) -> None:
    box = harness.make_box()
    first, second = harness.insert(box), harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        with claim.savepoint():
            harness.add_effect(claim.session, "first")
        with pytest.raises(ZeroDivisionError):
            write_and_fail(harness, claim, "second")
        with claim.savepoint():
            harness.add_effect(claim.session, "third")
        claim.commit(Settlement(delivered=[first], failed=[FailedAttempt(second, Status.FAILED, 1, "zero")]))
    assert harness.effects() == ["first", "third"]
    assert harness.statuses(box, first, second) == [2, 1]


def test_a_savepoint_before_the_session_was_used_covers_it(harness: Harness) -> None:
    box = harness.make_box()
    row = harness.insert(box)
    with harness.store.claims(box).open({0: None}, 10) as claim:
        with pytest.raises(ZeroDivisionError):
            write_and_fail(harness, claim, "undone")
        claim.commit(Settlement(delivered=[row]))
    assert (harness.effects(), harness.statuses(box, row)) == ([], [2])
