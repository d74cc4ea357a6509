"""How a worker learns of commits, and that it needs no such hint."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest
from redis import Redis

from boxengine.adapters.redis.wakeups import RedisNotifier
from boxengine.adapters.sql.connecting.cursors import Opened
from boxengine.adapters.sql.delivering.bounding import SqlBounds
from boxengine.adapters.sql.delivering.store import SqlStore
from boxengine.adapters.sql.looking.items import SqlItems
from boxengine.domain.bounds import Pace
from boxengine.domain.item import Status
from boxengine.domain.job import Job
from boxengine.ports import ItemFilter
from tests.eventually import eventually
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import Rig
from tests.integration.engine.rigs import MakeRig
from tests.integration.engine.watcher import Watcher

SLOW_LOOKS = {"tactic": "default", "rate_limit": 1, "rate_interval": 600}
"""By itself the poller looks at a box every ten minutes."""


def write_until_heard(rig: Rig, watcher: Watcher, *, many: int = 1) -> int:
    """The listener may not be connected yet; returns the number of rows it took."""
    rows = 0
    while not watcher.delivered and rows < 50 * many:
        rows += len(rig.create(*range(many)))
        watcher.listen(0.5)
    watcher.wait_for_settled(rows)
    return rows


@pytest.mark.parametrize("wakeup", ["notify", "redis"])
@pytest.mark.parametrize("many", [1, 5], ids=["one", "batch"])
def test_a_commit_wakes_a_poller_that_would_not_look_for_ten_minutes(make_rig: MakeRig, wakeup: str, many: int) -> None:
    rig, receiver = make_rig(wakeup=wakeup, poller=SLOW_LOOKS), Receiver()
    rig.carry(receiver)
    with rig.worker() as watcher:
        write_until_heard(rig, watcher, many=many)
    assert sorted(receiver.ids) == sorted(rig.rows())


def test_a_delayed_item_wakes_a_poller_that_would_not_look_for_ten_minutes(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(wakeup="notify", poller=SLOW_LOOKS), Receiver()
    rig.carry(receiver)
    with rig.worker() as watcher:
        before = write_until_heard(rig, watcher)
        (later,) = rig.create(1, available_at=datetime.now(UTC) + timedelta(seconds=1))
        watcher.wait_for_settled(before + 1)
    assert rig.row(later).processed_at >= rig.row(later).available_at


def test_an_item_that_is_delayed_when_the_worker_starts_comes_due_in_time(make_rig: MakeRig) -> None:
    rig, receiver = make_rig(wakeup="none", poller=SLOW_LOOKS), Receiver()
    rig.carry(receiver)
    (later,) = rig.create(1, available_at=datetime.now(UTC) + timedelta(seconds=2))
    rig.deliver(1)
    assert rig.row(later).processed_at >= rig.row(later).available_at


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
    rig, receiver = make_rig(poller={"concurrency": 1}), Receiver()
    rig.carry(receiver)
    ids = rig.create(1, 5, 2)
    rows = rig.rows()
    with Redis.from_url(redis_url) as client:
        client.set("sbmt:outbox:poller:order_outbox_item:0:lock", "somebody", px=60_000)
        for item_id in ids:
            client.lpush("order_outbox_item:job_queue", f"{rows[item_id].bucket}:1700000000:{item_id}")
    watcher = rig.deliver(3)
    assert watcher.polls == []  # the jobs did it: somebody else has the partition
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
        rig.deliver(3, processor_threads=1)  # with no idle thread to which a bucket could go past the queue
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


def test_a_worker_past_its_first_seconds_delivers_a_fresh_item_before_it_asks_for_a_lease(
    make_rig: MakeRig, redis_url: str
) -> None:
    rig, receiver = make_rig(wakeup="notify", poller={}), Receiver()
    rig.carry(receiver)

    def without_a_lease() -> bool:
        with Redis.from_url(redis_url) as client, client.monitor() as monitor:
            rig.create(1)
            watcher.wait_for_settled(len(rig.rows()))
            with Redis.from_url(redis_url) as other:
                other.echo("settled")
            commands = (command["command"].split(" ") for command in monitor.listen())
            seen = list(takewhile(lambda words: words != ["ECHO", "settled"], commands))
        return not any(words[0] == "SET" and ":processor:" in words[1] for words in seen)

    with rig.worker() as watcher:
        assert not without_a_lease()  # in its first seconds, it works by leases alone
        eventually(without_a_lease)
    assert receiver.ids == sorted(rig.rows())


def test_an_item_behind_the_bound_is_sent_again_once_people_retry_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, redis_url: str
) -> None:
    """Nothing but the signal can bring it back: this worker never looks from the start again."""
    made: list[SqlBounds] = []

    def bounds(opened: Opened, *, dialect: str, pace: Pace) -> SqlBounds:
        made.append(SqlBounds(opened, dialect=dialect, pace=replace(pace, items=1, slow=0.0, shortest=1e9)))
        return made[-1]

    monkeypatch.setattr("boxengine.adapters.sql.delivering.asking.SqlBounds", bounds)
    rig, receiver = make_rig(wakeup="notify", poller={}), Receiver()
    rig.carry(receiver)
    failed = rig.insert(status=int(Status.FAILED), errors_count=1)
    with rig.worker() as watcher:
        write_until_heard(rig, watcher)
        eventually(lambda: any(each.of(rig.box()).after(0) > failed for each in made), what="a bound behind the item")
        with closing(SqlStore(rig.engine)) as store, Redis.from_url(redis_url) as client:
            signal = None if rig.engine.dialect.name == "postgresql" else RedisNotifier(client).notify
            assert SqlItems(store, notify=True, signal=signal).retry(rig.box(), ItemFilter(), [failed]) == {failed}
        eventually(lambda: failed in receiver.ids, what="the item is sent again")
