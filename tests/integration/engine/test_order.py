"""Order on real servers: what a failed item holds back, and who lets it go."""

from __future__ import annotations

import pytest

from boxengine.domain.item import Item, Status
from boxengine.domain.outcome import Failure
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Receiver
from tests.integration.engine.rigs import MakeRig

PAUSES = {"minimal_retry_interval": 0.05, "maximal_retry_interval": 0.1}
ONE_BUCKET = 8
"""Keys 0, 8, 16: with eight buckets all in bucket 0."""


class Broken:
    """An answer that refuses some items until it is mended."""

    def __init__(self, *keys: str) -> None:
        self.keys = set(keys)

    def __call__(self, item: Item) -> Failure | None:
        return Failure("broken") if item.event_key in self.keys else None


KINDS = pytest.mark.parametrize("kind", [Receiver, BatchReceiver], ids=["item", "batch"])


@KINDS
def test_strict_order_by_bucket_holds_the_whole_bucket_until_the_item_goes_through(
    make_rig: MakeRig, kind: type[Receiver]
) -> None:
    rig = make_rig(bucket_size=8, box={"strict_order": True, **PAUSES})
    broken = Broken("0")
    receiver = kind(broken)
    rig.carry(receiver)
    first, neighbour, follower, elsewhere = rig.create(0, ONE_BUCKET, 0, 1)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) >= 3 and watcher.delivered == [elsewhere])
        assert set(receiver.ids) == {first, elsewhere}
        broken.keys.clear()
        watcher.wait_for(lambda: len(watcher.delivered) == 4)
    assert watcher.delivered[1:] == [first, neighbour, follower]
    assert rig.row(first).errors_count >= 3
    assert {attempt.status for attempt in watcher.failures} == {Status.PENDING}


@KINDS
def test_strict_order_by_key_holds_only_the_key(make_rig: MakeRig, kind: type[Receiver]) -> None:
    rig = make_rig(bucket_size=8, box={"strict_order": "key", **PAUSES})
    broken = Broken("0")
    receiver = kind(broken)
    rig.carry(receiver)
    first, neighbour, follower = rig.create(0, ONE_BUCKET, 0)
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) >= 2 and watcher.delivered == [neighbour])
        broken.keys.clear()
        watcher.wait_for(lambda: len(watcher.delivered) == 3)
    assert watcher.delivered == [neighbour, first, follower]


@pytest.mark.parametrize("verb", ["retry", "discard", "delete"])
def test_a_failed_item_parks_its_key_until_somebody_decides_about_it(make_rig: MakeRig, verb: str) -> None:
    rig = make_rig(bucket_size=8, box={"strict_order": "key", "max_retries": 1, **PAUSES})
    broken = Broken("0")
    receiver = Receiver(broken)
    rig.carry(receiver)
    first, neighbour, follower, last = rig.create(0, ONE_BUCKET, 0, 0)
    statements = {
        "retry": "UPDATE order_outbox_items SET status = 0, errors_count = 0, processed_at = NULL WHERE id = :id",
        "discard": "UPDATE order_outbox_items SET status = 3 WHERE id = :id",
        "delete": "DELETE FROM order_outbox_items WHERE id = :id",
    }
    with rig.worker() as watcher:
        watcher.wait_for(lambda: len(watcher.failures) == 2 and watcher.delivered == [neighbour])
        assert rig.row(first).status == Status.FAILED
        assert set(receiver.ids) == {first, neighbour}
        broken.keys.clear()
        rig.execute(statements[verb], id=first)
        released = [first, follower, last] if verb == "retry" else [follower, last]
        watcher.wait_for(lambda: len(watcher.delivered) == 1 + len(released))
    assert watcher.delivered == [neighbour, *released]


def test_without_strict_order_a_failed_item_steps_aside(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 600})
    rig.carry(Receiver(lambda item: Failure("no") if item.payload == b"bad" else None))
    (bad,) = rig.create("1", payload=b"bad")
    follower, neighbour = rig.create("1", "2")
    watcher = rig.deliver(3)
    assert sorted(watcher.delivered) == [follower, neighbour]
    assert (rig.row(bad).status, rig.row(bad).errors_count) == (Status.PENDING, 1)


def test_an_item_that_a_later_one_has_overtaken_is_discarded_where_somebody_asks_for_it(make_rig: MakeRig) -> None:
    latest = {"retry_strategies": ["exponential_backoff", "latest_available"]}
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 0.05, **latest})
    receiver = Receiver(lambda item: Failure("no") if item.payload == b"bad" else None)
    rig.carry(receiver)
    (bad,) = rig.create("1", payload=b"bad")
    (good,) = rig.create("1")
    watcher = rig.deliver(3)
    assert (watcher.delivered, watcher.discarded) == ([good], [bad])
    assert rig.row(bad).status == Status.DISCARDED
    assert receiver.ids.count(bad) == 1


@KINDS
def test_first_deliveries_of_a_key_keep_their_order_while_writers_go_on(
    make_rig: MakeRig, kind: type[Receiver]
) -> None:
    rig, receiver = make_rig(bucket_size=16, wakeup="notify"), kind()
    rig.carry(receiver)
    with rig.worker() as watcher:
        for _ in range(30):
            rig.create(*range(10))
        watcher.wait_for_settled(300)
    assert sorted(receiver.ids) == sorted(rig.rows())
    assert all(arrived == sorted(arrived) for arrived in receiver.by_key.values())


def test_unless_somebody_asks_for_it_an_overtaken_item_is_tried_again_and_not_discarded(make_rig: MakeRig) -> None:
    rig = make_rig(box={"max_retries": 5, "minimal_retry_interval": 0.05})
    rig.carry(Receiver(FailsFirst(1, guilty=lambda item: item.payload == b"bad")))
    (bad,) = rig.create("1", payload=b"bad")
    (good,) = rig.create("1")
    watcher = rig.deliver(3)
    assert (watcher.delivered, watcher.discarded) == ([good, bad], [])
