"""What only a real Redis shows: keys and formats shared with sbmt-outbox, round trips, outages, real time limits."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest
import redis

from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.pauses import RedisPauses
from boxengine.adapters.redis.queue import RedisJobQueue
from boxengine.adapters.redis.wakeups import RedisNotifier, RedisWakeups
from boxengine.adapters.system import SystemClock
from boxengine.domain.box import BoxType
from boxengine.embedded import EmbeddedValkey
from boxengine.errors import QueueUnavailable
from boxengine.ports import Duty, LeaseName, RememberedFailure, Signal, WorkerInfo
from tests.conformance.coordination import NO_WAIT, NOON, TTL, WAIT, RedisRig, job, make_box

BOX = make_box()
QUEUE = "order_outbox_item:job_queue"
ATTEMPTS = 100_000
BRIEF = timedelta(milliseconds=20)
LEASE = LeaseName(Duty.POLLING, "order_outbox_item", 0)


@pytest.fixture
def rig(redis_url: str) -> Iterator[RedisRig]:
    opened = RedisRig(redis_url)
    yield opened
    opened.close()


def calls(client: redis.Redis) -> dict[str, int]:
    """How often clients have called what may run a script or block."""
    stats: dict[str, Any] = client.info("commandstats")
    watched = ("evalsha", "eval", "brpop", "script|load")
    return {name: int(stats[f"cmdstat_{name}"]["calls"]) for name in watched if f"cmdstat_{name}" in stats}


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true within a bounded number of looks; each look takes a moment."""
    return any(condition() for _ in range(ATTEMPTS))


# ── shared with sbmt-outbox ──────────────────────────────────────────────────────────────────────────


def test_a_job_lies_in_the_reference_list_in_the_reference_format(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(3, 7, 8), job(4, 9)])
    assert rig.client.lrange(QUEUE, 0, -1) == [b"4:1800000000:9", b"3:1800000000:7,8"]


def test_a_taken_bucket_is_locked_where_the_reference_looks(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(3)])
    hold = rig.take(BOX)
    lock = "sbmt:outbox:processor:order_outbox_item:3:lock"
    assert rig.client.get(lock) == hold.token.encode()
    assert 0 < rig.client.pttl(lock) <= 30_000


def test_a_bucket_locked_by_the_reference_is_left_to_it(rig: RedisRig) -> None:
    rig.client.set("sbmt:outbox:processor:order_outbox_item:3:lock", "redlock", px=60_000)
    rig.push_raw(BOX, b"3:1800000000:7")
    assert rig.finds_nothing(BOX)
    assert rig.queue.push(BOX, [job(3)]) == 0
    assert rig.client.get("sbmt:outbox:processor:order_outbox_item:3:lock") == b"redlock"


ENDLESS = [pytest.param(None, id="without a limit"), pytest.param(timedelta(days=1), id="for a day")]
"""As copied to another server without its time limit, or taken before Redis's clock was set back."""


@pytest.mark.parametrize("left", ENDLESS)
def test_a_lease_that_outlasts_every_worker_bars_its_bucket_for_a_moment_only(
    rig: RedisRig, left: timedelta | None
) -> None:
    rig.client.set("sbmt:outbox:processor:order_outbox_item:3:lock", "nobody", px=left)
    rig.client.set("sbmt:outbox:processor:order_outbox_item:4:lock", "redlock", px=600_000)
    rig.queue.unattended(BOX, [3, 4])
    assert rig.queue.unattended(BOX, [3, 4]) == [3]
    assert rig.queue.push(BOX, [job(3), job(4)]) == 1


@pytest.mark.parametrize("left", ENDLESS)
def test_a_lease_on_a_duty_that_outlasts_every_worker_gives_way(rig: RedisRig, left: timedelta | None) -> None:
    rig.client.set("sbmt:outbox:poller:order_outbox_item:0:lock", "nobody", px=left)
    assert rig.leases.acquire(LEASE, "token", ttl=TTL)
    assert not rig.leases.acquire(LEASE, "another", ttl=TTL)


def test_a_worker_that_was_copied_from_another_server_is_not_listed(rig: RedisRig) -> None:
    worker = WorkerInfo(id="a1", host="h", pid=41, boxes=(), threads=4, started_at=rig.clock.now())
    rig.workers.announce(worker, ttl=TTL)
    assert rig.workers.living() == [worker]
    rig.client.persist("boxengine:worker:a1")
    assert rig.workers.living() == []


def test_a_named_lease_is_a_key_of_that_name(rig: RedisRig) -> None:
    name = "sbmt:outbox:poller:order_outbox_item:0:lock"
    rig.leases.acquire(LEASE, "token", ttl=TTL)
    assert rig.client.get(name) == b"token"


@pytest.mark.parametrize("box_type", list(BoxType))
def test_an_items_failures_are_the_references_item_meta(rig: RedisRig, box_type: BoxType) -> None:
    box = make_box("combined/item", box_type)
    rig.failures.remember(box, {42: RememberedFailure(3, "x" * 300, uuid="u-1")}, ttl=TTL)
    meta = json.loads(cast("bytes", rig.client.get(f"{box_type.value}:combined/item:42")))
    assert list(meta) == ["version", "timestamp", "errors_count", "error_msg", "uuid"]
    assert meta["uuid"] == "u-1"
    assert (meta["version"], meta["errors_count"], meta["error_msg"]) == (1, 3, "x" * 200)
    assert abs(meta["timestamp"] - rig.clock.now().timestamp()) < 3600


def test_item_meta_of_the_reference_is_recalled_and_rubbish_is_not(rig: RedisRig) -> None:
    written: dict[int, str | bytes] = {
        1: '{"version":1,"timestamp":1700000000,"errors_count":2,"error_msg":"StandardError boom"}',
        2: '{"version":1,"timestamp":1700000000,"errors_count":1,"error_msg":null}',
    }
    rubbish = ("rubbish", "[]", "{}", '{"errors_count":null}', b"\xff\xfe", "")
    for item_id, meta in (written | dict(enumerate(rubbish, start=3))).items():
        rig.client.set(f"outbox:order_outbox_item:{item_id}", meta)
    recalled = rig.failures.recall(BOX, range(1, 10))
    assert recalled == {1: RememberedFailure(2, "StandardError boom"), 2: RememberedFailure(1, "")}


def test_a_pause_is_the_record_that_the_references_api_keeps(rig: RedisRig) -> None:
    rig.pauses.set(make_box("combined/outbox_item"), polling_enabled=False)
    assert rig.client.hgetall("Sbmt::Outbox::Api::OutboxClass:combined-outbox-item") == {
        b"id": b"combined-outbox-item",
        b"polling_enabled": b"false",
    }


@pytest.mark.parametrize(
    ("written", "enabled"), [("true", True), ("1", True), ("false", False), ("0", False), ("f", False), ("OFF", False)]
)
def test_a_pause_set_by_the_reference_is_understood(rig: RedisRig, written: str, enabled: bool) -> None:
    inbox = make_box("order_item", BoxType.INBOX)
    rig.client.hset("Sbmt::Outbox::Api::InboxClass:order-item", mapping={"polling_enabled": written})
    assert rig.pauses.polling_enabled([inbox]) == {"order_item": enabled}


def test_a_mark_that_is_old_or_from_a_clock_far_ahead_or_doubted_does_not_count_as_queued(rig: RedisRig) -> None:
    now = int(rig.clock.now().timestamp())
    marks = {1: f"1:{now}:5", 2: f"2:{now - 10}:5", 3: f"3:{now + 3600}:5", 4: f"?4:{now}:5", 5: "rubbish"}
    rig.client.hset("order_outbox_item:queued", mapping={str(bucket): mark for bucket, mark in marks.items()})
    assert rig.queue.unattended(BOX, range(1, 7)) == [2, 3, 4, 5, 6]


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_push_is_one_round_trip_and_a_take_is_two(own_redis: EmbeddedValkey) -> None:
    rig, box = RedisRig(own_redis.url()), make_box(buckets=100)
    rig.queue.push(box, [job(99)])
    rig.take(box, wait=WAIT)
    rig.client.config_resetstat()
    rig.queue.push(box, [job(bucket) for bucket in range(40)])
    assert calls(rig.client) == {"evalsha": 1}
    assert len(rig.take(box, wait=WAIT).jobs) == 40
    assert calls(rig.client) == {"evalsha": 2, "brpop": 1}
    rig.close()


def test_a_seizure_is_one_round_trip(own_redis: EmbeddedValkey) -> None:
    rig = RedisRig(own_redis.url())
    rig.queue.seize(BOX, [job(1)], ttl=TTL)
    rig.client.config_resetstat()
    assert rig.queue.seize(BOX, [job(2)], ttl=TTL) is not None
    assert calls(rig.client) == {"evalsha": 1}
    rig.close()


def test_a_take_that_must_not_wait_never_blocks(own_redis: EmbeddedValkey) -> None:
    rig = RedisRig(own_redis.url())
    assert rig.queue.take([BOX, make_box("other")], wait=NO_WAIT, ttl=TTL, share=1) is None
    rig.queue.push(BOX, [job(1)])
    assert rig.queue.take([make_box("other"), BOX], wait=NO_WAIT, ttl=TTL, share=1) is not None
    assert "brpop" not in calls(rig.client)
    rig.close()


# ── marks of queued buckets ──────────────────────────────────────────────────────────────────────────


def test_a_bucket_whose_job_got_lost_on_the_way_to_a_worker_is_queued_again_after_a_while(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(1, pushed_at=NOON), job(2, pushed_at=NOON)])
    assert rig.client.brpop([QUEUE], timeout=1) == (QUEUE.encode(), b"1:1800000000:2")
    # Fresh marks are believed; an old one that is not in the list is suspected first, as its job may be on its way.
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 1)]) == 0
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 2)]) == 0
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 3)]) == 0
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 4)]) == 1
    assert rig.take(BOX).buckets == {1, 2}


def test_a_bucket_whose_job_got_lost_is_seized_after_a_while_and_its_old_mark_is_gone(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(1, pushed_at=NOON)])
    rig.client.delete(QUEUE)
    assert rig.queue.seize(BOX, [job(1, pushed_at=NOON + 2)], ttl=TTL) is None
    hold = rig.queue.seize(BOX, [job(1, pushed_at=NOON + 4)], ttl=TTL)
    assert hold is not None
    assert rig.queue.release(hold, [1]) == frozenset()
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 4)]) == 1


def test_a_mark_from_a_worker_whose_clock_is_ahead_stops_no_bucket(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(1, pushed_at=NOON + 3600)])
    rig.client.delete(QUEUE)
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON)]) == 0
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 2)]) == 1


def test_a_suspected_bucket_that_turns_up_in_work_is_cleared(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(1, pushed_at=NOON)])
    element = cast("bytes", rig.client.rpop(QUEUE))
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 60)]) == 0
    rig.client.rpush(QUEUE, element)
    hold = rig.take(BOX)
    assert rig.queue.release(hold, [1]) == frozenset()
    assert rig.queue.push(BOX, [job(1, pushed_at=NOON + 61)]) == 1


def test_a_job_that_lies_long_in_the_queue_is_not_doubled(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(1, pushed_at=NOON)])
    for later in (60, 3600, -60, -3600):
        assert rig.queue.push(BOX, [job(1, pushed_at=NOON + later)]) == 0
    assert rig.queue.state(BOX).length == 1


@pytest.mark.parametrize("evicted", ["job_queue", "queued", "wanted"])
def test_one_key_evicted_under_memory_pressure_stops_no_bucket(rig: RedisRig, evicted: str) -> None:
    rig.queue.push(BOX, [job(1, pushed_at=NOON)])
    rig.client.delete(f"order_outbox_item:{evicted}")
    for later in (10, 20):
        rig.queue.push(BOX, [job(1, pushed_at=NOON + later)])
    hold = rig.take(BOX)
    assert hold.buckets == {1}
    assert rig.queue.release(hold, [1]) == frozenset()


def test_a_mark_that_a_stranger_wrote_stops_no_bucket(rig: RedisRig) -> None:
    rig.client.hset("order_outbox_item:queued", "1", "rubbish")
    for later in (0, 10):
        rig.queue.push(BOX, [job(1, pushed_at=NOON + later)])
    assert rig.take(BOX).buckets == {1}


# ── strangers ────────────────────────────────────────────────────────────────────────────────────────


def test_a_flood_of_rubbish_is_cleared_away_in_bounded_portions_and_costs_no_job(rig: RedisRig) -> None:
    rig.client.lpush(QUEUE, *([b"rubbish"] * 1500))
    rig.queue.push(BOX, [job(1)])
    assert rig.finds_nothing(BOX)
    assert len(rig.corrupt) == 1000
    assert rig.take(BOX).buckets == {1}
    assert len(rig.corrupt) == 1500


def test_a_job_right_behind_a_portion_of_rubbish_is_not_lost(rig: RedisRig) -> None:
    rig.client.lpush(QUEUE, *([b"rubbish"] * 1000))
    rig.queue.push(BOX, [job(1)])
    assert rig.finds_nothing(BOX)
    assert rig.take(BOX).buckets == {1}


def test_a_bucket_number_with_leading_zeros_is_that_bucket(rig: RedisRig) -> None:
    rig.push_raw(BOX, b"007:1800000000:1")
    hold = rig.take(BOX)
    assert hold.buckets == {7}
    assert rig.queue.extend(hold, ttl=TTL) == frozenset()


# ── real time limits ─────────────────────────────────────────────────────────────────────────────────


def test_the_server_ends_leases_by_itself(rig: RedisRig) -> None:
    rig.queue.push(BOX, [job(1)])
    hold = rig.take(BOX, ttl=BRIEF)
    rig.leases.acquire(LEASE, "a", ttl=BRIEF)
    rig.failures.remember(BOX, {1: RememberedFailure(1, "")}, ttl=BRIEF)
    assert eventually(lambda: rig.queue.push(BOX, [job(1)]) == 1)
    assert rig.queue.extend(hold, ttl=TTL) == {1}
    assert eventually(lambda: rig.leases.acquire(LEASE, "b", ttl=TTL))
    assert eventually(lambda: rig.failures.recall(BOX, [1]) == {})


# ── outages ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_server_that_is_not_there_is_reported_with_its_cause() -> None:
    with connect("redis://127.0.0.1:1/0") as client:
        queue = RedisJobQueue(client, clock=SystemClock())
        for call in (queue.ping, lambda: queue.push(BOX, [job(1)]), lambda: queue.state(BOX)):
            with pytest.raises(QueueUnavailable) as caught:
                call()
            assert isinstance(caught.value.__cause__, redis.exceptions.ConnectionError)
        with pytest.raises(QueueUnavailable):
            queue.take([BOX], wait=WAIT, ttl=TTL, share=1)


def test_a_queue_that_is_a_string_is_reported_dropped_and_made_anew(rig: RedisRig) -> None:
    rig.client.set(QUEUE, "a string")
    assert rig.queue.push(BOX, [job(1)]) == 1
    assert rig.take(BOX).buckets == {1}
    assert rig.corrupt == [(BOX.name, b"the key order_outbox_item:job_queue, a string")]


def test_a_key_of_another_type_in_place_of_a_lease_gives_way_to_a_seizure(rig: RedisRig) -> None:
    lease = "sbmt:outbox:processor:order_outbox_item:1:lock"
    rig.client.lpush(lease, "a list")
    hold = rig.queue.seize(BOX, [job(1)], ttl=TTL)
    assert hold is not None
    assert rig.client.get(lease) == hold.token.encode()
    assert rig.corrupt == [(BOX.name, f"the key {lease}, a list".encode())]


def test_a_restarted_server_is_used_again_with_scripts_and_all(own_redis: EmbeddedValkey) -> None:
    rig = RedisRig(own_redis.url())
    rig.queue.push(BOX, [job(1), job(2)])
    hold = rig.take(BOX, share=2)
    own_redis.kill()
    with pytest.raises(QueueUnavailable):
        rig.queue.extend(hold, ttl=TTL)
    own_redis.start()
    assert rig.queue.extend(hold, ttl=TTL) == {1}
    assert rig.queue.push(BOX, [job(1)]) == 1
    assert rig.take(BOX).buckets == {1}
    rig.close()


def test_a_take_that_waits_hears_of_an_outage(own_redis: EmbeddedValkey) -> None:
    rig = RedisRig(own_redis.url())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.queue.take, [BOX], wait=WAIT, ttl=TTL, share=1)
        assert eventually(lambda: rig.client.info("clients")["blocked_clients"] == 1)
        own_redis.kill()
        with pytest.raises(QueueUnavailable):
            waiting.result(timeout=30)
    rig.close()


def test_a_frozen_server_is_an_outage_once_its_time_limit_is_over(own_redis: EmbeddedValkey) -> None:
    with connect(own_redis.url(), answer_timeout=timedelta(milliseconds=200)) as client:
        queue = RedisJobQueue(client, clock=SystemClock())
        queue.ping()
        own_redis.send_signal(signal.SIGSTOP)
        with pytest.raises(QueueUnavailable):
            queue.ping()
        own_redis.send_signal(signal.SIGCONT)
        queue.ping()


def test_a_wait_longer_than_the_time_limit_of_answers_is_cut_short_and_no_outage(redis_url: str) -> None:
    with connect(redis_url, answer_timeout=timedelta(seconds=1.1)) as client:
        queue = RedisJobQueue(client, clock=SystemClock())
        assert queue.take([BOX], wait=WAIT, ttl=TTL, share=1) is None


# ── wake-ups ─────────────────────────────────────────────────────────────────────────────────────────


def listen(wakeups: RedisWakeups) -> bool:
    return eventually(lambda: wakeups.wait(BRIEF) == [] and wakeups.reliable)


@pytest.mark.parametrize(
    "raised",
    [ValueError("I/O operation on closed file."), AttributeError("'NoneType' object has no attribute 'readline'")],
)
def test_an_interruption_whose_client_is_closed_meanwhile_ends_quietly(
    rig: RedisRig, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    """Pytest reports what a thread raises."""
    assert rig.queue.take([make_box()], wait=timedelta(milliseconds=1), ttl=TTL, share=1) is None

    def read_from_a_closed_buffer(_pipeline: Any) -> None:
        raise raised

    monkeypatch.setattr(redis.client.Pipeline, "execute", read_from_a_closed_buffer)
    rig.queue.interrupt()
    for thread in threading.enumerate():
        if thread.name == "boxengine-interrupt":
            thread.join()


def test_more_than_a_hundred_threads_have_a_connection_each(redis_url: str) -> None:
    client = connect(redis_url)
    taken = [client.connection_pool.get_connection() for _ in range(120)]
    for each in taken:
        client.connection_pool.release(each)
    client.close()
    assert len(set(taken)) == 120


def test_hints_are_unreliable_while_the_server_is_away_and_come_again_after(own_redis: EmbeddedValkey) -> None:
    rig = RedisRig(own_redis.url())
    assert isinstance(rig.wakeups, RedisWakeups)
    assert not rig.wakeups.reliable
    assert listen(rig.wakeups)
    own_redis.kill()
    with pytest.raises(QueueUnavailable):
        rig.wakeups.wait(WAIT)
    assert not rig.wakeups.reliable
    with pytest.raises(QueueUnavailable):
        rig.wakeups.wait(WAIT)
    with pytest.raises(QueueUnavailable):
        rig.notify([Signal("a", 1)])
    own_redis.start()
    assert rig.wakeups.beginnings == 1
    # It tells of the beginning at once: what was committed before was told to nobody.
    assert rig.wakeups.wait(WAIT) == []
    assert (rig.wakeups.reliable, rig.wakeups.beginnings) == (True, 2)
    rig.notify([Signal("a", 1)])
    assert rig.wakeups.wait(WAIT) == [Signal("a", 1)]
    rig.close()


def test_a_listener_notices_a_server_that_has_frozen(own_redis: EmbeddedValkey) -> None:
    with connect(own_redis.url()) as client:
        wakeups = RedisWakeups(client, clock=SystemClock(), check_interval=timedelta(milliseconds=50))
        assert listen(wakeups)
        own_redis.send_signal(signal.SIGSTOP)
        with pytest.raises(QueueUnavailable, match="no sign of life"):
            eventually(lambda: bool(wakeups.wait(BRIEF)))
        assert not wakeups.reliable
        own_redis.send_signal(signal.SIGCONT)
        wakeups.close()


def test_a_silent_but_living_server_stays_reliable(redis_url: str) -> None:
    with connect(redis_url) as client:
        wakeups = RedisWakeups(client, clock=SystemClock(), check_interval=timedelta(milliseconds=50))
        assert listen(wakeups)
        for _ in range(20):
            assert wakeups.wait(BRIEF) == []
        assert wakeups.reliable
        wakeups.close()


def test_a_closed_listener_leaves_no_connection_behind(rig: RedisRig) -> None:
    assert isinstance(rig.wakeups, RedisWakeups)
    assert listen(rig.wakeups)
    assert rig.client.pubsub_numsub(rig.channel) == [(rig.channel.encode(), 1)]
    rig.wakeups.close()
    assert eventually(lambda: rig.client.pubsub_numsub(rig.channel) == [(rig.channel.encode(), 0)])


def test_what_strangers_publish_breaks_nothing(rig: RedisRig) -> None:
    assert isinstance(rig.wakeups, RedisWakeups)
    assert listen(rig.wakeups)
    rig.client.publish(rig.channel, b"\xff\xfe")
    rig.client.publish(rig.channel, "a:b")
    assert rig.wakeups.wait(WAIT) == [Signal("a:b", None)]


def test_applications_with_channels_of_their_own_do_not_wake_each_other(redis_url: str) -> None:
    with connect(redis_url) as client:
        wakeups = RedisWakeups(client, clock=SystemClock(), channel="shop:wakeups")
        assert listen(wakeups)
        RedisNotifier(client, channel="bank:wakeups").notify([Signal("a", 1)])
        RedisNotifier(client, channel="shop:wakeups").notify([Signal("a", 2)])
        assert wakeups.wait(WAIT) == [Signal("a", 2)]
        wakeups.close()


def test_the_pauses_of_hundreds_of_boxes_take_one_command_and_are_heard_without_the_right_to_sort(
    redis_url: str,
) -> None:
    client = connect(redis_url)
    boxes = [make_box(f"box_{number}") for number in range(300)]
    pauses = RedisPauses(client)
    pauses.set(boxes[7], polling_enabled=False)
    pauses.polling_enabled(boxes)
    before = calls_of(client, "sort", "hget")
    assert pauses.polling_enabled(boxes) == {"box_7": False}
    assert calls_of(client, "sort", "hget") - before == 1
    client.delete("boxengine:outbox_boxes")
    client.set("boxengine:outbox_boxes", "a stranger's")  # as good as no permission
    assert pauses.polling_enabled(boxes) == {"box_7": False}
    client.close()


def calls_of(client: redis.Redis, *names: str) -> int:
    stats: dict[str, Any] = client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in names)
