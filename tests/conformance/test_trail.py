"""The trail: what people did, the latest deeds of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from boxengine.adapters.memory.trail import MemoryTrail
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.trail import KEY, RedisTrail
from boxengine.ports.people.trail import Deed, Trail

DEED = Deed(
    at=datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC),
    who="Зоя",
    action="retry",
    box="order_outbox_item",
    what="failed items of key 17",
    outcome="3 retried",
)


@pytest.fixture(params=["memory", "redis"])
def make_trail(request: pytest.FixtureRequest) -> Iterator[Callable[..., Trail]]:
    if request.param == "memory":
        yield MemoryTrail
        return
    client = connect(request.getfixturevalue("redis_url"))
    yield lambda **options: RedisTrail(client, **options)
    client.close()


def test_what_was_done_is_read_the_latest_first(make_trail: Callable[..., Trail]) -> None:
    trail = make_trail()
    assert trail.latest(10) == []
    deeds = [replace(DEED, what=f"item {number}") for number in range(3)]
    for deed in deeds:
        trail.add(deed)
    assert trail.latest(10) == deeds[::-1]
    assert trail.latest(2) == deeds[:0:-1]


def test_no_more_deeds_are_kept_than_there_is_room_for(make_trail: Callable[..., Trail]) -> None:
    trail = make_trail(kept=2)
    for number in range(5):
        trail.add(replace(DEED, what=str(number)))
    assert [deed.what for deed in trail.latest(10)] == ["4", "3"]


def test_what_somebody_else_put_in_its_place_is_no_deed(redis_url: str) -> None:
    client = connect(redis_url)
    trail = RedisTrail(client)
    client.lpush(KEY, "nonsense", "[]", '{"at": 5}')
    assert trail.latest(10) == []
    client.delete(KEY)
    client.set(KEY, "a text")
    assert trail.latest(10) == []
    trail.add(DEED)
    assert trail.latest(10) == [DEED]
    client.close()


def test_two_installations_on_one_redis_do_not_see_each_others_deeds(redis_url: str) -> None:
    client = connect(redis_url)
    one, other = RedisTrail(client, prefix="one:"), RedisTrail(client, prefix="other:")
    one.add(DEED)
    assert (one.latest(10), other.latest(10)) == ([DEED], [])
    client.close()
