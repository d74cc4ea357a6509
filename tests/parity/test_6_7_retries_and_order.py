"""Retry strategies and order."""

from __future__ import annotations

from datetime import timedelta

import pytest

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from boxengine.domain.retry import ExponentialBackoff, LatestAvailable, NoDelay
from tests.integration.engine.receivers import FailsFirst, Receiver
from tests.integration.engine.rig import Rig
from tests.parity.harness import RETRIES, MakeRig


def refuse_bad(item: Item) -> Failure | None:
    return Failure("no") if item.payload == b"bad" else None


def test_the_default_strategies(rig: Rig) -> None:
    strategies = rig.boxes.pipeline("order_outbox_item").retry_strategies
    assert [type(strategy) for strategy in strategies] == [ExponentialBackoff, LatestAvailable]


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


def test_no_delay(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "retry_strategies": ["no_delay"]})
    rig.carry(Receiver(FailsFirst(2)))
    rig.create(1)
    rig.deliver(3)
    assert rig.statuses() == [Status.DELIVERED]


def test_latest_available_discards_when_a_later_one_is_delivered(make_rig: MakeRig) -> None:
    rig = make_rig(box=RETRIES)
    rig.carry(Receiver(refuse_bad))
    (bad,) = rig.create(1, payload=b"bad")
    rig.create(1)
    rig.deliver(3)
    assert rig.row(bad).status == Status.DISCARDED


def test_latest_available_keeps_trying_while_the_later_one_is_undelivered(make_rig: MakeRig) -> None:
    rig = make_rig(box={**RETRIES, "max_retries": 1})
    rig.carry(Receiver(refuse_bad))
    bad, also_bad = rig.create(1, 1, payload=b"bad")
    rig.deliver(4)
    assert [rig.row(each).status for each in (bad, also_bad)] == [Status.FAILED] * 2


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


def test_strict_order_true_holds_the_bucket_and_never_fails_the_item(make_rig: MakeRig) -> None:
    rig = make_rig(box={"strict_order": True, "minimal_retry_interval": 0.05, "maximal_retry_interval": 0.05})
    receiver = Receiver(FailsFirst(4, guilty=lambda item: item.payload == b"bad"))
    rig.carry(receiver)
    (bad,) = rig.create(1, payload=b"bad")
    rest = rig.create(1, 5, 1)
    rig.deliver(8)
    assert list(dict.fromkeys(receiver.ids)) == [bad, *rest]
    assert rig.row(bad).errors_count == 4
    assert rig.boxes.pipeline("order_outbox_item").retry_strategies == ()


def test_strict_order_key_holds_the_key_only_and_parks_it_when_retries_are_used_up(make_rig: MakeRig) -> None:
    rig = make_rig(box={**RETRIES, "strict_order": "key", "max_retries": 1})
    receiver = Receiver(refuse_bad)
    rig.carry(receiver)
    (bad,) = rig.create(1, payload=b"bad")
    follower, other = rig.create(1, 5)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) == 2 and watcher.delivered == [other])
        assert rig.row(bad).status == Status.FAILED
        rig.execute(f"UPDATE order_outbox_items SET status = {Status.DISCARDED:d} WHERE id = {bad}")
        watcher.wait_for(lambda: watcher.delivered == [other, follower])
