"""Redis: keys and formats that Ruby workers share, and that nothing in it is needed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from boxengine.adapters.memory.clock import ManualClock
from boxengine.domain.item import Item, Status
from boxengine.domain.job import Job
from boxengine.domain.outcome import Failure
from boxengine.engine.polling.pauses import PauseWatch
from boxengine.ports import Duty, LeaseName
from tests.eventually import eventually
from tests.integration.engine.receivers import BatchReceiver, FailsFirst, Gate, Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.parity.harness import QUEUE, RETRIES, MakeRig, Spy, servers_of

OLD_ENOUGH = timedelta(minutes=1)
"""For an item to have failed before: what was written this second is not looked up."""


def test_job_queue(rig: Rig, spy: Spy) -> None:
    box = rig.box()
    with servers_of(rig) as connected:
        connected.queue.push(box, [Job(3, 1_700_000_000, (5, 7)), Job(1, 1_700_000_001, (6,))])
    assert spy.elements() == [b"1:1700000001:6", b"3:1700000000:5,7"]  # LPUSH, so the oldest last


def test_partition_lease(make_rig: MakeRig, spy: Spy) -> None:
    rig, gate = make_rig(poller={"tactic": "aggressive", "concurrency": 2}), Gate()
    rig.carry(gate)
    rig.create(*range(4))
    with rig.worker() as watcher:
        assert gate.entered.wait(30)
        leases = eventually(lambda: spy.keys("sbmt:outbox:poller:*"))
        assert leases <= {f"sbmt:outbox:poller:{BOX}:{partition}:lock" for partition in range(2)}
        assert all(0 < spy.client.pttl(lease) <= 60_000 for lease in leases)
        gate.open()
        watcher.wait_for_settled(4)
    assert spy.keys("sbmt:outbox:poller:*") == set()


def test_partition_lease_is_freed_by_its_holder_only(rig: Rig, spy: Spy) -> None:
    name, lease = f"sbmt:outbox:poller:{BOX}:0:lock", LeaseName(Duty.POLLING, BOX, 0)
    with servers_of(rig) as connected:
        assert connected.leases.acquire(lease, "mine", ttl=timedelta(seconds=60))
        assert (spy.text(name), connected.leases.acquire(lease, "theirs", ttl=timedelta(seconds=60))) == ("mine", False)
        connected.leases.release(lease, "theirs")
        assert spy.text(name) == "mine"
        connected.leases.release(lease, "mine")
        assert spy.text(name) is None


def test_partition_lease_of_another_worker_keeps_this_one_from_polling(make_rig: MakeRig, spy: Spy) -> None:
    rig = make_rig(poller={"tactic": "aggressive", "concurrency": 1})
    rig.carry(Receiver())
    rig.create(1)
    lease = f"sbmt:outbox:poller:{BOX}:0:lock"
    spy.client.set(lease, "a Ruby worker", px=60_000)
    with rig.worker() as watcher:
        watcher.listen(0.5)
        assert watcher.polls == []
        assert spy.text(lease) == "a Ruby worker"
        spy.client.delete(lease)
        watcher.wait_for_settled(1)


def test_bucket_lease(rig: Rig, spy: Spy) -> None:
    gate = Gate()
    rig.carry(gate)
    rig.create(3)
    lease = f"sbmt:outbox:processor:{BOX}:3:lock"
    with rig.worker() as watcher:
        assert gate.entered.wait(30)
        assert spy.text(lease)
        assert 0 < spy.client.pttl(lease) <= 180_000
        gate.open()
        watcher.wait_for_settled(1)
    assert spy.text(lease) is None


def test_item_meta(make_rig: MakeRig, spy: Spy) -> None:
    rig, gate = make_rig(box={**RETRIES, "max_retries": 9}), Gate(lambda _item: Failure("no \N{SNOWMAN} " * 100))
    rig.carry(gate)
    (item_id,) = rig.create(1)
    key = f"outbox:{BOX}:{item_id}"
    with rig.worker():
        assert gate.entered.wait(30)
        rig.cut_connections(of_claims=True)  # now the database refuses to store the failure
        gate.open()
        found = eventually(lambda: spy.text(key))
        lasting = spy.client.pttl(key)
    meta = json.loads(found or "")
    assert meta.keys() == {"version", "timestamp", "errors_count", "error_msg", "uuid"}
    assert meta["uuid"] == str(rig.row(item_id).uuid)
    assert (meta["version"], meta["errors_count"]) == (1, 1)
    assert abs(meta["timestamp"] - datetime.now(UTC).timestamp()) < 600
    assert len(meta["error_msg"]) == 200
    assert 9 * 180_000 < lasting <= 10 * 180_000  # ten general timeouts


@pytest.mark.parametrize("written_by", ["boxengine", "the reference"])
def test_box_pause(make_rig: MakeRig, spy: Spy, written_by: str) -> None:
    rig = make_rig(outbox_items={BOX: {}, "other_outbox_item": {}})
    key = "Sbmt::Outbox::Api::OutboxClass:order-outbox-item"
    if written_by == "boxengine":
        with servers_of(rig) as connected:
            connected.pauses.set(rig.box(), polling_enabled=False)
        assert spy.client.hget(key, "polling_enabled") == b"false"
    else:
        spy.client.hset(key, "polling_enabled", "false")
    for name in (BOX, "other_outbox_item"):
        rig.carry(Receiver(), box=name)
        rig.create(*range(4), box=name)
    watcher = rig.deliver(4)
    assert {name for name, _, _ in watcher.polls} == {"other_outbox_item"}
    assert set(rig.statuses()) == {Status.PENDING}


def test_box_pause_is_seen_within_ten_seconds(rig: Rig) -> None:
    clock = ManualClock()
    with servers_of(rig) as connected:
        watch = PauseWatch(connected.pauses, [rig.box()], clock=clock)
        for enabled in (True, False, True):
            connected.pauses.set(rig.box(), polling_enabled=enabled)
            clock.advance(timedelta(seconds=10))
            assert watch.paused(rig.box()) is not enabled


def test_box_pause_ends_the_polling_of_a_running_worker(rig: Rig) -> None:
    rig.carry(Receiver())
    with servers_of(rig) as connected, rig.worker() as watcher:
        connected.pauses.set(rig.box(), polling_enabled=False)

        def left_alone() -> bool:
            (item_id,) = rig.create(1)
            watcher.listen(1.0)
            return bool(rig.row(item_id).status == Status.PENDING)

        eventually(left_alone)
        connected.pauses.set(rig.box(), polling_enabled=True)
        watcher.wait_for_settled(len(rig.rows()))


def test_a_job_whose_bucket_is_leased_elsewhere_is_dropped_and_its_rows_polled_again(rig: Rig, spy: Spy) -> None:
    receiver = Receiver()
    rig.carry(receiver)
    (item_id,) = rig.create(3)
    spy.client.set(f"sbmt:outbox:processor:{BOX}:3:lock", "somebody", px=1500)
    spy.client.lpush(QUEUE, f"3:1700000000:{item_id}")
    rig.deliver(1)
    assert receiver.ids == [item_id]


def test_at_most_one_job_per_bucket_is_queued_or_in_work(rig: Rig, spy: Spy) -> None:
    gate = Gate()
    rig.carry(gate)
    rig.create(0)
    with rig.worker(processor_threads=1) as watcher:
        assert gate.entered.wait(30)
        rig.create(*range(40))
        eventually(lambda: len(spy.elements()) == 3)
        before = len(watcher.polls)
        # Their marks grow old in a while, and then those that are still queued are polled again.
        watcher.wait_for(lambda: len(watcher.polls) > before)
        queued = [int(element.partition(b":")[0]) for element in spy.elements()]
        assert sorted(queued) == [1, 2, 3]
        assert {int(key.split(":")[-2]) for key in spy.keys("sbmt:outbox:processor:*")} == {0}
        gate.open()
        watcher.wait_for_settled(41)


def test_flushall_costs_time_but_neither_an_item_nor_the_order(rig: Rig, spy: Spy) -> None:
    def flush(item: Item) -> None:
        if item.id % 50 == 0:
            spy.client.flushall()

    receiver = BatchReceiver(flush)
    rig.carry(receiver)
    ids = rig.create(*(number % 20 for number in range(200)))
    with rig.worker() as watcher:
        watcher.wait_for_settled(200)
    assert sorted(receiver.ids) == ids
    assert all(arrived == sorted(arrived) for arrived in receiver.by_key.values())


def test_what_redis_remembers_of_a_failure_counts_when_the_row_knows_less(make_rig: MakeRig, spy: Spy) -> None:
    """Ours: however high the count, the item has one more try, for anybody may have written it."""
    rig, receiver = make_rig(box=RETRIES), Receiver(FailsFirst(9))
    rig.carry(receiver)
    (item_id,) = rig.create(1, created_at=datetime.now(UTC) - OLD_ENOUGH)
    meta = {"version": 1, "timestamp": 1_700_000_000, "errors_count": 30, "error_msg": "Ruby was here"}
    spy.client.set(f"outbox:{BOX}:{item_id}", json.dumps(meta), ex=60)
    rig.deliver(1)
    row = rig.row(item_id)
    assert (receiver.ids, row.status) == ([item_id], Status.FAILED)
    assert row.errors_count == RETRIES["max_retries"] + 1
    assert spy.client.get(f"outbox:{BOX}:{item_id}") is None  # what is recorded is forgotten


def test_what_redis_remembers_of_a_failure_with_retries_left_is_counted_on(make_rig: MakeRig, spy: Spy) -> None:
    rig = make_rig(box={**RETRIES, "max_retries": 3})
    rig.carry(Receiver(FailsFirst(1)))
    (item_id,) = rig.create(1, created_at=datetime.now(UTC) - OLD_ENOUGH)
    meta = {"version": 1, "timestamp": 1_700_000_000, "errors_count": 2, "error_msg": "Ruby was here"}
    spy.client.set(f"outbox:{BOX}:{item_id}", json.dumps(meta), ex=60)
    rig.deliver(2)
    assert (rig.row(item_id).status, rig.row(item_id).errors_count) == (Status.DELIVERED, 3)


def test_jobs_of_the_reference_are_worked_on(make_rig: MakeRig, spy: Spy) -> None:
    rig, receiver = make_rig(poller={"concurrency": 1}), Receiver()
    rig.carry(receiver)
    ids = rig.create(1, 5, 2)
    spy.client.set(f"sbmt:outbox:poller:{BOX}:0:lock", "somebody", px=60_000)
    for element in (f"1:1700000000:{ids[0]},{ids[1]}", f"2:1700000001:{ids[2]}"):
        spy.client.lpush(QUEUE, element)
    watcher = rig.deliver(3)
    assert watcher.polls == []  # the jobs did it: somebody else has the partition
    assert sorted(receiver.ids) == ids
    assert receiver.by_key["1"] + receiver.by_key["5"] == ids[:2]
