"""How a worker learns of commits, and that it needs no such hint."""

from __future__ import annotations

import pytest
from redis import Redis

from boxengine.domain.item import Status
from boxengine.domain.job import Job
from tests.integration.engine.conftest import MakeRig
from tests.integration.engine.receivers import Receiver

SLOW_LOOKS = {"tactic": "default", "rate_limit": 1, "rate_interval": 600}
"""By itself the poller looks at a box every ten minutes."""


@pytest.mark.parametrize("wakeup", ["notify", "redis"])
@pytest.mark.parametrize("many", [1, 5], ids=["one", "batch"])
def test_a_commit_wakes_a_poller_that_would_not_look_for_ten_minutes(make_rig: MakeRig, wakeup: str, many: int) -> None:
    rig, receiver = make_rig(wakeup=wakeup, poller=SLOW_LOOKS), Receiver()
    rig.carry(receiver)
    rounds = 0
    with rig.worker() as watcher:
        while not receiver.ids and rounds < 50:  # the listener may not be connected yet: write until one is heard
            rig.create(*range(many))
            rounds += 1
            watcher.listen(0.5)
        watcher.wait_for_settled(rounds * many)
    assert sorted(receiver.ids) == sorted(rig.rows())


def test_without_wakeups_the_poller_finds_rows_by_itself(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(wakeup="none"), Receiver()
    rig.carry(receiver)
    with rig.worker() as watcher:
        ids = rig.create(1, 2, 3)
        watcher.wait_for_settled(3)
    assert sorted(receiver.ids) == ids


def test_rows_written_by_plain_sql_are_found_though_nobody_told_of_them(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(wakeup="notify", poller={}), Receiver()
    rig.carry(receiver)
    with rig.worker() as watcher:
        rig.create(0)
        watcher.wait_for_settled(1)
        quiet = rig.insert(bucket=3, event_key="7")
        watcher.wait_for_settled(2)
    assert receiver.ids[-1] == quiet


def test_a_rolled_back_row_is_never_seen(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(wakeup="notify"), Receiver()
    rig.carry(receiver)
    with rig.worker() as watcher:
        for number in range(20):
            with rig.engine.connect() as connection:
                transaction = connection.begin()
                rig.boxes.create_outbox_item(connection, "order_outbox_item", event_key=number, payload=b"undone")
                transaction.rollback()
        ids = rig.create(1, 2)
        watcher.wait_for_settled(2)
    assert sorted(receiver.ids) == ids


def test_jobs_in_the_reference_format_are_worked_on(make_rig: MakeRig, redis_url: str) -> None:
    rig, receiver = make_rig(polling_auto_disabled=True), Receiver()
    rig.carry(receiver)
    ids = rig.create(1, 5, 2)
    rows = rig.rows()
    with Redis.from_url(redis_url) as client:
        for item_id in ids:
            client.lpush("order_outbox_item:job_queue", f"{rows[item_id].bucket}:1700000000:{item_id}")
    watcher = rig.deliver(3)
    assert watcher.polls == []  # the jobs did it: polling is off
    assert sorted(receiver.ids) == ids
    assert set(rig.statuses()) == {Status.DELIVERED}


def test_foreign_elements_in_the_queue_are_dropped_and_harm_nobody(make_rig: MakeRig, redis_url: str) -> None:
    rig, receiver = make_rig(), Receiver()
    rig.carry(receiver)
    ids = rig.create(1, 2, 3)
    with Redis.from_url(redis_url) as client:
        for element in (b"", b"hello", b"1:2", b"-1:5:7", b"1:2:", b"\xff\xfe", b"99:1700000000:5"):
            client.lpush("order_outbox_item:job_queue", element)
    rig.deliver(3)
    assert sorted(receiver.ids) == ids


def test_a_job_that_boxengine_queues_reads_by_the_references_rules(make_rig: MakeRig, redis_url: str) -> None:
    rig = make_rig()
    rig.carry(Receiver())
    ids = rig.create(1, 1, 2)
    buckets = {row.id: row.bucket for row in rig.rows().values()}
    written: list[str] = []
    with Redis.from_url(redis_url) as client, client.monitor() as monitor:
        rig.deliver(3)
        for command in monitor.listen():
            words = command["command"].split(" ")
            if words[:2] == ["LPUSH", "order_outbox_item:job_queue"]:
                written += words[2:]
            if len(written) >= 2:
                break
    for element in written:
        bucket, pushed_at, found = element.split(":")
        assert int(pushed_at) > 1_700_000_000
        item_ids = [int(each) for each in found.split(",")]
        assert item_ids
        assert {buckets[each] for each in item_ids} == {int(bucket)}
        assert Job.decode(element).ids == tuple(item_ids)
    assert {int(each) for element in written for each in element.split(":")[2].split(",")} == set(ids)
