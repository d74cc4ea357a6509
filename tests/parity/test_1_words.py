"""What the words mean: box, item, bucket, partition, job, lease."""

from __future__ import annotations

from boxengine.domain.job import Job
from boxengine.domain.outcome import Failure
from tests.integration.engine.receivers import Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.parity.harness import MakeRig, Spy, servers_of

OTHER = "other_outbox_item"


def test_word_box(make_rig: MakeRig) -> None:
    rig = make_rig(outbox_items={BOX: {"max_retries": 0}, OTHER: {"max_retries": 3, "minimal_retry_interval": 600}})
    assert [rig.box(name).table for name in (BOX, OTHER)] == ["order_outbox_items", "other_outbox_items"]
    for name in (BOX, OTHER):
        rig.carry(Receiver(lambda _item: Failure("no")), box=name)
        rig.create(1, box=name)
    rig.deliver(2)
    assert [rig.statuses(name) for name in (BOX, OTHER)] == [[1], [0]]


def test_word_item(rig: Rig) -> None:
    receiver = Receiver()
    rig.carry(receiver)
    ids = rig.create(1, 1)
    rig.deliver(2)
    assert [item.id for item in receiver.items] == ids == list(rig.rows())


def test_word_bucket(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=16)
    ids = rig.create(*range(40))
    assert [rig.row(each).bucket for each in ids] == [number % 16 for number in range(40)]
    rig = make_rig(bucket_size=4)
    assert [rig.row(each).bucket for each in ids] == [
        number % 16 for number in range(40)
    ]  # those written stay as they are
    (later,) = rig.create(7)
    assert rig.row(later).bucket == 3


def test_word_partition(make_rig: MakeRig) -> None:
    rig = make_rig(bucket_size=10)
    assert [list(rig.box().partition(number, 4)) for number in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_word_job(rig: Rig, spy: Spy) -> None:
    with servers_of(rig) as connected:
        connected.queue.push(rig.box(), [Job(2, 1_700_000_000, (5, 7))])
    (element,) = spy.elements()
    bucket, pushed_at, ids = element.split(b":")
    assert (int(bucket), int(pushed_at), [int(each) for each in ids.split(b",")]) == (2, 1_700_000_000, [5, 7])


def test_word_lease(rig: Rig, spy: Spy) -> None:
    gate = Gate()
    rig.carry(gate)
    rig.create(3)
    with rig.worker() as watcher:
        assert gate.entered.wait(30)
        leases = spy.keys("sbmt:outbox:*:lock")
        left = {lease: spy.client.pttl(lease) for lease in leases}
        assert left[f"sbmt:outbox:processor:{BOX}:3:lock"] > 0
        # -2: a poller's has ended meanwhile; -1 would be a lease that nobody gets again after a crash.
        assert all(each > 0 or each == -2 for each in left.values()), left
        gate.open()
        watcher.wait_for_settled(1)
    assert spy.keys("sbmt:outbox:processor:*") == set()
