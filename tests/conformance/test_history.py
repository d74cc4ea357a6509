"""The history: what happened lately, bounded."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from boxengine.adapters.memory.history import MemoryHistory
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.history import RedisHistory
from boxengine.ports.people.history import Calls, Happened, History, Span

BOX, OTHER = "order_outbox_item", "combined/outbox_item"
NOON = datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture(params=["memory", "redis"])
def history(request: pytest.FixtureRequest) -> Iterator[History]:
    if request.param == "memory":
        yield MemoryHistory()
        return
    client = connect(request.getfixturevalue("redis_url"))
    yield RedisHistory(client)
    client.close()


def test_where_nothing_happened_there_are_empty_slots(history: History) -> None:
    slots = history.read(BOX, Span.HOUR, now=NOON)
    assert (len(slots), len(history.read(BOX, Span.DAY, now=NOON))) == (60, 144)
    assert all(slot.happened == Happened() and slot.oldest_wait is None for slot in slots)
    assert slots[-1].at == NOON.replace(second=0)
    assert slots[-1].at - slots[0].at == timedelta(minutes=59)
    assert history.lately([BOX, OTHER], now=NOON) == {BOX: Happened(), OTHER: Happened()}


def test_what_happens_adds_up_in_its_slot_and_box(history: History) -> None:
    history.add({BOX: Happened(3, 1, {2: 1, 5: 1})}, now=NOON)
    history.add({BOX: Happened(4, 0, {5: 2}), OTHER: Happened(1)}, now=NOON + timedelta(seconds=20))
    history.add({BOX: Happened(10)}, now=NOON + MINUTE)
    slots = history.read(BOX, Span.HOUR, now=NOON + MINUTE)
    assert [slot.happened for slot in slots[-2:]] == [Happened(7, 1, {2: 1, 5: 3}), Happened(10)]
    assert history.read(BOX, Span.DAY, now=NOON + MINUTE)[-1].happened == Happened(17, 1, {2: 1, 5: 3})
    assert history.read(OTHER, Span.HOUR, now=NOON)[-1].happened == Happened(1)


def test_transports_add_up_by_name_whatever_they_are_called(history: History) -> None:
    http, kafka = Calls(10, 10, 2, 1.5), Calls(1, 500, 0, 0.25)
    history.add({BOX: Happened(5, transports={"http": http, "заказ:kafka": kafka})}, now=NOON)
    history.add({BOX: Happened(5, transports={"http": http})}, now=NOON + MINUTE)
    assert history.read(BOX, Span.DAY, now=NOON)[-1].happened.transports == {"http": http + http, "заказ:kafka": kafka}
    assert history.lately([BOX], now=NOON + MINUTE)[BOX].transports == {"http": http + http, "заказ:kafka": kafka}


def test_lately_is_this_minute_and_the_last(history: History) -> None:
    for minutes in (3, 1, 0):
        history.add({BOX: Happened(delivered=10**minutes, waits={minutes: 1})}, now=NOON - minutes * MINUTE)
    assert history.lately([BOX], now=NOON) == {BOX: Happened(11, 0, {1: 1, 0: 1})}


def test_the_last_measured_wait_of_a_slot_counts(history: History) -> None:
    for seconds in (5.0, 7.25):
        history.measured({BOX: seconds}, now=NOON)
    assert history.read(BOX, Span.HOUR, now=NOON)[-1].oldest_wait == 7.25
    assert history.read(BOX, Span.DAY, now=NOON)[-1].oldest_wait == 7.25


def test_each_slot_goes_by_itself_so_that_there_is_an_end_to_them(redis_url: str) -> None:
    client = connect(redis_url)
    RedisHistory(client).add({BOX: Happened(1, 1, dict.fromkeys(range(17), 1))}, now=NOON)
    left = sorted(client.ttl(key) for key in client.keys("*"))
    assert len(left) == 2
    assert 3_600 < left[0] <= 3_720
    assert 86_400 < left[1] <= 87_600
    client.close()


def test_what_somebody_else_put_in_its_place_is_no_history(redis_url: str) -> None:
    client = connect(redis_url)
    history = RedisHistory(client)
    history.add({BOX: Happened(1)}, now=NOON)
    for key in client.keys("*"):
        client.delete(key)
        client.set(key, "a text")
    assert history.read(BOX, Span.HOUR, now=NOON)[-1].happened == Happened()
    history.add({BOX: Happened(1)}, now=NOON)
    client.flushdb()
    history.add({BOX: Happened(1)}, now=NOON)
    for key in client.keys("*"):
        client.hset(key, mapping={"d": "many", "wx": "1", "o": "long", "z": "?"})
    assert history.lately([BOX], now=NOON) == {BOX: Happened()}
    assert history.read(BOX, Span.DAY, now=NOON)[-1].oldest_wait is None
    client.close()


def test_a_share_of_waits_is_told_by_the_upper_bound_of_its_class() -> None:
    happened = Happened(waits={3: 98, 7: 1, 16: 1})
    assert happened.wait(0.5) == 0.05
    assert happened.wait(0.99) == 1.0
    assert happened.wait(1.0) == 7200.0, "what is longer than all classes is at least the last"
    assert Happened().wait(0.5) is None


def test_two_installations_on_one_redis_count_for_themselves(redis_url: str) -> None:
    client = connect(redis_url)
    one, other = RedisHistory(client, prefix="one:"), RedisHistory(client, prefix="other:")
    one.add({BOX: Happened(5)}, now=NOON)
    assert one.lately([BOX], now=NOON) == {BOX: Happened(5)}
    assert other.lately([BOX], now=NOON) == {BOX: Happened()}
    client.close()
