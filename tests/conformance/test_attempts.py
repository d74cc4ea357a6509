"""Failed attempts lately: the last of an item, of the items that failed last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from boxengine.adapters.memory.attempts import MemoryAttempts
from boxengine.adapters.redis.attempts import RedisAttempts
from boxengine.adapters.redis.connection import connect
from boxengine.ports.people.attempts import KEPT_ATTEMPTS, Attempt, Attempts

BOX, OTHER = "order_outbox_item", "combined/outbox_item"
NOON = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)
FIRST = Attempt(item_id=41, uuid="u-41", at=NOON, number=1, reason="http: Timeout: заказ")


@pytest.fixture(params=["memory", "redis"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Attempts]]:
    if request.param == "memory":
        yield MemoryAttempts
        return
    client = connect(request.getfixturevalue("redis_url"))
    yield lambda **options: RedisAttempts(client, **options)
    client.close()


def nth(number: int, item_id: int = 41) -> Attempt:
    return replace(
        FIRST, item_id=item_id, uuid=f"u-{item_id}", number=number, at=NOON + timedelta(seconds=number + item_id)
    )


def test_an_items_attempts_come_back_in_their_order_and_no_others(make: Callable[..., Attempts]) -> None:
    attempts = make()
    assert attempts.of(BOX, 41, "u-41") == []
    attempts.add({BOX: [nth(1), nth(1, 42)], OTHER: [nth(7)]})
    attempts.add({BOX: [nth(2)]})
    assert attempts.of(BOX, 41, "u-41") == [nth(1), nth(2)]
    assert attempts.of(OTHER, 41, "u-41") == [nth(7)]


def test_an_item_of_the_same_id_after_a_restore_has_none(make: Callable[..., Attempts]) -> None:
    attempts = make()
    attempts.add({BOX: [FIRST]})
    assert attempts.of(BOX, 41, "another") == []


def test_of_one_item_the_last_are_kept(make: Callable[..., Attempts]) -> None:
    attempts = make()
    for number in range(KEPT_ATTEMPTS + 5):
        attempts.add({BOX: [nth(number)]})
    assert attempts.of(BOX, 41, "u-41") == [nth(number) for number in range(5, KEPT_ATTEMPTS + 5)]


def test_of_a_box_the_items_that_failed_last_are_kept(make: Callable[..., Attempts]) -> None:
    attempts = make(items=3)
    attempts.add({BOX: [nth(1, item_id) for item_id in (1, 2, 3)], OTHER: [nth(1, 1)]})
    attempts.add({BOX: [nth(9, 1), nth(1, 4)]})  # the first has failed again since
    attempts.add({BOX: [nth(1, 15)]})
    known = [item_id for item_id in (1, 2, 3, 4, 15) if attempts.of(BOX, item_id, f"u-{item_id}")]
    assert known == [1, 4, 15]
    assert attempts.of(OTHER, 1, "u-1") == [nth(1, 1)]


def test_whatever_stands_in_redis_is_no_reason_to_fail(redis_url: str) -> None:
    client = connect(redis_url)
    client.set("boxengine:attempts:order_outbox_item:41", "x")
    client.rpush("boxengine:attempts:order_outbox_item:42", "x", "[1]", '["x", 1, 2, 3]', "[" * 5000)
    attempts = RedisAttempts(client)
    attempts.add({BOX: [FIRST, nth(1, 42)]})
    assert attempts.of(BOX, 41, "u-41") == []
    assert attempts.of(BOX, 42, "u-42") == [nth(1, 42)]
    client.close()
