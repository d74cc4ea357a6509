"""What others leave in Redis under our names: told, counted, dropped; no thread ends of it and no item waits for it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from boxengine.adapters.redis.attempts import RedisAttempts
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.failures import RedisFailures
from boxengine.adapters.redis.history import RedisHistory
from boxengine.adapters.redis.in_hand import RedisInHand
from boxengine.adapters.redis.workers import RedisWorkers
from boxengine.adapters.system import SystemClock
from boxengine.adapters.telemetry.prometheus import PrometheusObserver
from boxengine.ports import Signal
from boxengine.ports.events import Event
from boxengine.ports.people.attempts import Attempt
from boxengine.ports.people.history import Calls, Happened, Span
from tests.conformance.coordination import RedisRig, job, make_box
from tests.integration.engine.receivers import Receiver
from tests.integration.engine.rig import BOX, Rig
from tests.integration.engine.watcher import Watcher

FOUR = make_box(buckets=4)
ITEMS = 12
SLOW_SERVERS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
Put = Callable[[redis.Redis, str], Any]
KINDS: dict[str, Put] = {
    "string": lambda client, key: client.set(key, "a stranger's"),
    "list": lambda client, key: client.rpush(key, "a", "b"),
    "hash": lambda client, key: client.hset(key, mapping={"0": "a", "polling_enabled": "maybe"}),
    "set": lambda client, key: client.sadd(key, "a", "0"),
    "zset": lambda client, key: client.zadd(key, {"a": 1.0}),
    "stream": lambda client, key: client.xadd(key, {"a": "b"}),
}
KEYS = {
    f"{BOX}:job_queue": "list",
    f"{BOX}:queued": "hash",
    f"{BOX}:wanted": "set",
    f"boxengine:in_work:{BOX}": "hash",
    f"sbmt:outbox:processor:{BOX}:0:lock": "string",
}
OTHER_KEYS = {
    f"sbmt:outbox:poller:{BOX}:0:lock": "string",
    "Sbmt::Outbox::Api::OutboxClass:order-outbox-item": "hash",
    f"outbox:{BOX}:1": "string",
    "boxengine:workers": "set",
}


class Counting(Watcher):
    """Also keeps Prometheus' count of what is foreign."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = CollectorRegistry()
        self._counts = PrometheusObserver(clock=SystemClock(), partitions=4, registry=self.registry)

    def see(self, event: Event) -> None:
        self._counts.see(event)
        super().see(event)


@pytest.fixture
def rig(tmp_path: Path, postgres_url: str, redis_url: str) -> Iterator[Rig]:
    with Rig(tmp_path, database=postgres_url, redis=redis_url) as rig:
        rig.create_tables()
        yield rig


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with connect(redis_url) as client:
        yield client


def delivers_all(rig: Rig, watcher: Watcher | None = None) -> Watcher:
    """Runs a worker over committed items until all are delivered, each once, with no outage to tell of."""
    receiver = Receiver()
    rig.carry(receiver)
    ids = rig.create(*range(ITEMS))
    watching = watcher or Watcher()
    with rig.worker(watching):
        watching.wait_for_settled(ITEMS)
    assert sorted(receiver.ids) == ids
    assert watching.outages == []
    return watching


# ── elements of the queue ────────────────────────────────────────────────────────────────────────────

DIGITS = st.text("0123456789", max_size=25)
ALMOST_JOBS = st.builds(
    lambda parts, end: ":".join(parts).encode() + end,
    st.lists(
        st.one_of(DIGITS, DIGITS.map(lambda text: f"-{text}"), st.sampled_from(["1,2", ",", "1,,2", "é", "1.5", ""]))
    ),
    st.sampled_from([b"", b"\xff", b"\x00", b"\n", b":", b":later"]),
)
BIG = st.sampled_from([b"1:2:" + b"1," * 600_000 + b"1", b"x" * 2_000_000, b"9" * 70_000, b"1:2:" + b"9" * 70_000])


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(elements=st.lists(st.one_of(ALMOST_JOBS, st.binary(max_size=40)), min_size=1, max_size=6), big=st.none() | BIG)
def test_every_element_is_a_job_of_the_box_or_told_and_dropped(
    redis_url: str, elements: list[bytes], big: bytes | None
) -> None:
    rig = RedisRig(redis_url)
    rig.flush_all()
    for element in [*elements, *([big] if big else [])]:
        rig.push_raw(FOUR, element)
    rig.queue.push(FOUR, [job(3)])
    buckets: set[int] = set()
    while rig.queue.state(FOUR).length:
        hold = rig.take(FOUR)
        buckets |= hold.buckets
        assert rig.queue.release(hold, hold.buckets) == frozenset()
    rig.close()
    assert 3 in buckets
    assert buckets <= set(FOUR.buckets)
    told = [element for _, element in rig.corrupt]
    assert all(len(element) <= 200 for element in told)
    assert not big or big[:200] in told


def test_a_worker_counts_and_drops_what_is_no_job_and_delivers_the_rest(rig: Rig, client: redis.Redis) -> None:
    rubbish = [
        b"rubbish",
        b"4:1:1",
        b"-1:1:1",
        f"{2**31}:1:1".encode(),
        f"{2**63}:1:1".encode(),
        b"\xff",
        b"0:1:-5",
        b"1::",
    ]
    client.rpush(f"{BOX}:job_queue", *rubbish, b"x" * 2_000_000)
    watcher = Counting()
    delivers_all(rig, watcher)
    assert sorted(element[:50] for element in watcher.foreign_elements) == sorted([*rubbish, b"x" * 50])
    line = 'box_worker_foreign_jobs_total{name="order_outbox_item",owner="",type="outbox"} 9.0'
    assert line in generate_latest(watcher.registry).decode()


def test_jobs_with_ids_that_do_not_exist_are_hints_and_no_more(rig: Rig, client: redis.Redis) -> None:
    far = [f"{bucket}:1:{2**63 - 1},{10**18}" for bucket in range(4)]
    client.rpush(f"{BOX}:job_queue", *far, "0:9999999999999999999:1", f"1:0:{2**63},{10**19 - 1}")
    watcher = delivers_all(rig)
    assert watcher.foreign_elements == []


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_the_queue_of_any_wrong_type_is_told_and_dropped(rig: Rig, client: redis.Redis, key: str) -> None:
    for kind, put in KINDS.items():
        if kind != KEYS[key]:
            client.delete(key)
            put(client, key)
            watcher = delivers_all(rig)
            assert f"the key {key}, a {kind}".encode() in watcher.foreign_elements


@pytest.mark.parametrize("key", OTHER_KEYS)
def test_no_other_key_of_a_wrong_type_stops_a_worker(rig: Rig, client: redis.Redis, key: str) -> None:
    for kind, put in KINDS.items():
        if kind != OTHER_KEYS[key]:
            client.delete(key)
            put(client, key)
            delivers_all(rig)


def test_keys_of_the_right_type_full_of_rubbish_stop_nothing(rig: Rig, client: redis.Redis) -> None:
    client.hset(f"{BOX}:queued", mapping={"0": "rubbish", "1": b"\xff", "2": "?", "x" * 1000: "", "3": "9" * 400})
    client.sadd(f"{BOX}:wanted", "0", "1", "-1", "rubbish", b"\xff", "9" * 400)
    delivers_all(rig)


def test_a_number_of_thousands_of_digits_is_no_bucket_no_note_and_no_item(redis_url: str, client: redis.Redis) -> None:
    rig, endless = RedisRig(redis_url), "9" * 5000
    client.hset(f"boxengine:in_work:{BOX}", mapping={endless: "x", "3": "y"})
    assert rig.queue.in_work(FOUR) == {3}
    client.hset(f"boxengine:in_hand:{BOX}", "item", f"{endless}:another")
    assert RedisInHand(client, worker="this").put(FOUR, "item") == 0
    client.zadd(f"boxengine:attempts:{BOX}", {endless: 0, "rubbish": 0})
    attempts = RedisAttempts(client, items=1)
    failed = [Attempt(item_id=number, uuid="u", at=datetime.now(UTC), number=1, reason="") for number in (1, 2)]
    attempts.add({BOX: failed})
    assert client.zcard(f"boxengine:attempts:{BOX}") == 1
    rig.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "hash"])
def test_a_pause_replaces_a_key_of_a_wrong_type(redis_url: str, kind: str) -> None:
    rig = RedisRig(redis_url)
    KINDS[kind](rig.client, "Sbmt::Outbox::Api::OutboxClass:order-outbox-item")
    assert rig.pauses.polling_enabled([FOUR]) == {}
    rig.pauses.set(FOUR, polling_enabled=False)
    assert rig.pauses.polling_enabled([FOUR]) == {BOX: False}
    rig.close()


# ── what is remembered of items, workers and wake-ups ────────────────────────────────────────────────

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.integers(), st.floats(), st.sampled_from([10**30, -1, 2**31, "2", "x", None, [], True])
)
METAS = st.one_of(
    st.binary(max_size=30),
    st.sampled_from([b"[" * 50_000, b'{"a":' * 50_000, b'{"errors_count":Infinity}', b'{"errors_count":1e400}']),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"errors_count": NUMBERS}, optional={"error_msg": JSON}).map(
        lambda value: json.dumps(value).encode()
    ),
)


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(metas=st.lists(METAS, min_size=1, max_size=8))
def test_corrupt_item_meta_counts_as_forgotten(client: redis.Redis, metas: list[bytes]) -> None:
    for number, meta in enumerate(metas, start=1):
        client.set(f"outbox:{BOX}:{number}", meta)
    recalled = RedisFailures(client, clock=SystemClock()).recall(FOUR, range(1, len(metas) + 1))
    assert all(0 <= failure.errors_count < 2**31 - 1 and len(failure.error_msg) <= 200 for failure in recalled.values())


def test_corrupt_item_meta_delays_no_delivery(rig: Rig, client: redis.Redis) -> None:
    values = [
        b"\xff",
        b"[]",
        b"[" * 50_000,
        b'{"errors_count":1e400}',
        b'{"errors_count":-5}',
        b'{"errors_count":10e30}',
        b"null",
    ]
    for number, value in enumerate(values, start=1):
        client.set(f"outbox:{BOX}:{number}", value)
    delivers_all(rig)


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(values=st.lists(st.one_of(METAS, st.just(b'{"started_at":"2026-01-01"}')), max_size=4))
def test_rubbish_among_the_workers_is_no_worker(client: redis.Redis, values: list[bytes]) -> None:
    names = [random.Random(str(values)).randbytes(4) for _ in values]
    client.delete("boxengine:workers")
    for name, value in zip(names, values, strict=True):
        client.sadd("boxengine:workers", name)
        client.set(f"boxengine:worker:{name.decode(errors='replace')}", value)
    assert RedisWorkers(client).living() == []


@pytest.mark.parametrize("value", ["inf", "-inf", "nan", "1e400", "-5", "9" * 5000, "9" * 400, "", "rubbish", b"\xff"])
@pytest.mark.parametrize("field", ["o", "d", "f", "w0", "tc:log", "tm:log"])
def test_an_absurd_number_in_the_history_is_none(client: redis.Redis, field: str, value: str | bytes) -> None:
    history, now = RedisHistory(client), datetime.now(UTC)
    history.measured({BOX: 2.5}, now=now)
    history.add({BOX: Happened(delivered=1)}, now=now)
    [key] = client.keys(f"boxengine:history:{BOX}:hour:*")
    client.hset(key, mapping={field: value, "w" + "9" * 5000: "1"})
    slot = history.read(BOX, Span.HOUR, now=now)[-1]
    assert slot.oldest_wait == (None if field == "o" else 2.5)
    assert (slot.happened.delivered, slot.happened.failed) == (int(field != "d"), 0)
    assert not any(slot.happened.waits.values())
    assert all(calls == Calls() for calls in slot.happened.transports.values())


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW_SERVERS)
@given(messages=st.lists(st.one_of(st.binary(max_size=30), st.just(b"box:" + b"9" * 5000)), max_size=5))
def test_a_rubbish_wake_up_wakes_nobody_and_the_next_good_one_is_heard(redis_url: str, messages: list[bytes]) -> None:
    rig = RedisRig(redis_url)
    rig.wakeups.wait(timedelta(0))
    for message in messages:
        rig.client.publish(rig.channel, message)
    rig.client.publish(rig.channel, f"{BOX}:3")
    heard: list[Signal] = []
    while not heard or heard[-1].bucket != 3 or heard[-1].box_name != BOX:
        heard += rig.wakeups.wait(timedelta(seconds=60))
    rig.close()
    assert all(signal.bucket is None or signal.bucket < 10**10 for signal in heard)
