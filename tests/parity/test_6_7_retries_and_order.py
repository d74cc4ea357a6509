"""Retry strategies and order."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import DISCARD, Failure, Verdict
from boxengine.domain.retry import ExponentialBackoff, LatestAvailable, NoDelay, RetryContext
from boxengine.errors import ConfigurationError
from boxengine.ports import ItemFilter
from tests.eventually import eventually
from tests.integration.engine.receivers import FailsFirst, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.parity.harness import RETRIES, MakeRig, Spy, servers_of


def refuse_bad(item: Item) -> Failure | None:
    return Failure("no") if item.payload == b"bad" else None


LATEST = {**RETRIES, "retry_strategies": ["exponential_backoff", "latest_available"]}


def test_the_default_strategy_discards_nothing(rig: Rig) -> None:
    strategies = rig.boxes.pipeline("order_outbox_item").retry_strategies
    assert [type(strategy) for strategy in strategies] == [ExponentialBackoff]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("exponential_backoff", ExponentialBackoff),
        ("latest_available", LatestAvailable),
        ("compacted_log", LatestAvailable),
        ("no_delay", NoDelay),
    ],
)
def test_strategies_by_name(make_rig: MakeRig, name: str, kind: type) -> None:
    rig = make_rig(box={"retry_strategies": [name]})
    (strategy,) = rig.boxes.pipeline("order_outbox_item").retry_strategies
    assert type(strategy) is kind


def test_a_strategy_by_its_dotted_path(make_rig: MakeRig) -> None:
    rig = make_rig(box={**RETRIES, "retry_strategies": [f"{__name__}.GivesUp"]})
    rig.carry(Receiver(lambda _item: False))
    (item_id,) = rig.create(1)
    rig.deliver(2)
    assert rig.row(item_id).status == Status.DISCARDED


class GivesUp:
    """As a user writes one."""

    def __call__(self, item: Item, context: RetryContext) -> Verdict:
        assert context.now >= item.created_at
        return DISCARD


def test_exponential_backoff(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 10, "maximal_retry_interval": 35})
    rig.carry(Receiver())
    pauses = {1: 10, 2: 20, 3: 35}
    for errors, pause in pauses.items():
        for early in (timedelta(seconds=5), timedelta(seconds=-5)):
            tried = rig.now() - timedelta(seconds=pause) + early
            rig.insert(event_key=f"{errors}{early}", errors_count=errors, processed_at=tried, bucket=errors)
    rig.create("sentinel")
    watcher = rig.deliver(4)
    assert [row.status for row in rig.rows().values()][:6] == [0, 2] * 3
    assert len(watcher.delivered) == 4


def test_jitter_shortens_a_pause_by_a_part_that_follows_from_the_id(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 100, "jitter_retry_interval": 1.0})
    rig.carry(Receiver())
    backoff = rig.box().backoff
    assert backoff is not None
    tried = rig.now() - timedelta(seconds=50)
    ids = [
        rig.insert(bucket=number % 4, event_key=str(number), errors_count=1, processed_at=tried) for number in range(40)
    ]
    due = [each for each in ids if backoff.pause(1, each) <= timedelta(seconds=50)]
    soon = [each for each in ids if timedelta(seconds=50) < backoff.pause(1, each) < timedelta(seconds=80)]
    assert 0 < len(due) < 40
    watcher = rig.deliver(len(due))
    assert set(due) <= set(watcher.delivered) <= {*due, *soon}


def test_rows_not_yet_due_are_not_polled(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 600})
    rig.carry(Receiver())
    for number in range(20):
        rig.insert(bucket=number % 4, errors_count=1, processed_at=rig.now())
    rig.create(1)
    watcher = rig.deliver(1)
    assert sum(found for _, found, _ in watcher.polls) <= 2  # the fresh one, perhaps twice


def test_no_delay(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "retry_strategies": ["no_delay"]})
    rig.carry(Receiver(FailsFirst(2)))
    rig.create(1)
    rig.deliver(3)
    assert rig.statuses() == [Status.DELIVERED]


def test_latest_available_discards_when_a_later_one_is_delivered(make_rig: MakeRig) -> None:
    rig = make_rig(box=LATEST)
    rig.carry(Receiver(refuse_bad))
    (bad,) = rig.create(1, payload=b"bad")
    (later,) = rig.create(1)
    rig.deliver(3)
    assert rig.row(bad).status == Status.DISCARDED
    assert f"item {later}, a later one of its key, was delivered" in rig.row(bad).error_log


def test_latest_available_keeps_trying_while_the_later_one_is_undelivered(make_rig: MakeRig) -> None:
    rig = make_rig(box={**LATEST, "max_retries": 1})
    rig.carry(Receiver(refuse_bad))
    bad, also_bad = rig.create(1, 1, payload=b"bad")
    rig.deliver(4)
    assert [rig.row(each).status for each in (bad, also_bad)] == [Status.FAILED] * 2


def test_latest_available_is_by_event_name_too(make_rig: MakeRig) -> None:
    rig = make_rig(box=LATEST)
    rig.carry(Receiver(FailsFirst(1, guilty=lambda item: item.payload == b"bad")))
    (bad,) = rig.create(1, payload=b"bad", event_name="created")
    rig.create(1, event_name="paid")
    rig.deliver(3)
    assert rig.row(bad).status == Status.DELIVERED


def test_keys_that_differ_in_case_only_are_different_keys(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    receiver = Receiver(FailsFirst(1, guilty=lambda item: item.event_key == "a1"))
    rig.carry(receiver)
    small, _ = rig.create("a1", "A1")
    rig.deliver(3)
    assert rig.row(small).status == Status.DELIVERED


def test_without_strict_order_followers_go_on(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 600})
    rig.carry(Receiver(refuse_bad))
    (bad,) = rig.create(1, payload=b"bad")
    (follower,) = rig.create(1)
    rig.deliver(2)
    assert [rig.row(each).status for each in (bad, follower)] == [Status.PENDING, Status.DELIVERED]


def test_the_same_key_goes_to_the_same_bucket_and_by_id(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(bucket_size=16), Receiver()
    rig.carry(receiver)
    ids = [each for _ in range(5) for each in rig.create("order-1", "order-2", "x-17")]
    assert len({(row.event_key, row.bucket) for row in rig.rows().values()}) == 3
    rig.deliver(len(ids))
    assert receiver.by_key == {key: ids[place::3] for place, key in enumerate(("order-1", "order-2", "x-17"))}


@pytest.mark.parametrize("spelling", [True, "bucket"])
def test_strict_order_true_holds_the_bucket_and_never_fails_the_item(make_rig: MakeRig, spelling: bool | str) -> None:
    rig = make_rig(box={"strict_order": spelling, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.05})
    receiver = Receiver(FailsFirst(4, guilty=lambda item: item.payload == b"bad"))
    rig.carry(receiver)
    (bad,) = rig.create(1, payload=b"bad")
    rest = rig.create(1, 5, 1)
    rig.deliver(8)
    assert list(dict.fromkeys(receiver.ids)) == [bad, *rest]
    assert rig.row(bad).errors_count == 4
    assert rig.boxes.pipeline("order_outbox_item").retry_strategies == ()


def test_strict_order_admits_no_retry_strategies(make_rig: MakeRig) -> None:
    with pytest.raises(ConfigurationError, match="retry_strategies"):
        make_rig(box={"strict_order": True, "retry_strategies": ["no_delay"]})


@pytest.mark.parametrize("verb", ["retry", "discard", "delete"])
def test_strict_order_key_holds_the_key_only_and_parks_it_until_somebody_decides(make_rig: MakeRig, verb: str) -> None:
    rig = make_rig(box={**RETRIES, "strict_order": "key", "max_retries": 1})
    bad_payloads = {b"bad"}
    rig.carry(Receiver(lambda item: Failure("no") if item.payload in bad_payloads else None))
    (bad,) = rig.create(1, payload=b"bad")
    follower, other = rig.create(1, 5)
    with servers_of(rig) as connected, rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) == 2 and watcher.delivered == [other])
        assert rig.row(bad).status == Status.FAILED
        bad_payloads.clear()
        decide = getattr(connected.items, verb)
        eventually(lambda: decide(rig.box(), ItemFilter(), [bad]) == {bad})
        released = [bad, follower] if verb == "retry" else [follower]
        watcher.wait_for(lambda: watcher.delivered == [other, *released])


def test_strict_order_retries_back_off(make_rig: MakeRig) -> None:
    rig = make_rig(box={"strict_order": "key", "max_retries": 5, "minimal_retry_interval": 600})
    rig.carry(Receiver(refuse_bad))
    (bad,) = rig.create(1, payload=b"bad")
    follower, other = rig.create(1, 5)
    watcher = rig.deliver(2)
    assert (watcher.delivered, [rig.row(each).status for each in (bad, follower, other)]) == ([other], [0, 0, 2])


def test_a_lease_that_is_gone_breaks_no_order(make_rig: MakeRig, spy: Spy) -> None:
    """As when it has run out, when the process was paused, when Redis was lost: the database has the last word."""
    rig = make_rig(bucket_size=1, box={"strict_order": "key", "max_retries": 5})
    gate, other = Gate(), Receiver()
    rig.carry(gate)
    ids = rig.create(1, 1, 1)
    with rig.worker(processor_threads=1) as first:
        assert gate.entered.wait(30)
        rig.carry(other)
        with rig.worker() as second:
            spy.client.flushall()
            second.wait_for(lambda: any(state == "skipped" for _, state in second.states))  # it found the bucket locked
            assert other.ids == []
            gate.open()
            eventually(lambda: set(rig.statuses()) == {Status.DELIVERED})
    assert first.delivered + second.delivered == ids
    assert gate.ids + other.ids == ids


def test_the_docs_say_that_writers_of_one_key_must_be_serialised(rig: Rig) -> None:
    docs = (Path(__file__).parents[2] / "docs" / "databases.md").read_text()
    assert "serialise writers of one key" in docs
    # Why: ids follow the order in which they were drawn, not that of the commits.
    with rig.engine.connect() as early, rig.engine.connect() as late, early.begin():
        first = rig.boxes.create_outbox_item(early, BOX, event_key=1, payload=b"")
        with late.begin():
            second = rig.boxes.create_outbox_item(late, BOX, event_key=1, payload=b"")
        assert first < second
        assert list(rig.rows()) == [second]
