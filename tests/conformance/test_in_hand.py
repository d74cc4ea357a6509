"""Items that are sent one at a time: what a worker was about is known after its death, and no longer than needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from boxengine.adapters.memory.in_hand import MemoryInHand
from boxengine.adapters.redis.connection import connect
from boxengine.adapters.redis.in_hand import RedisInHand
from boxengine.ports import InHand
from tests.conformance.coordination import make_box

BOX = make_box("in_hand_outbox_item")
Make = Callable[[str], InHand]


@pytest.fixture(params=["memory", "redis"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """A worker's view, by the worker's name."""
    if request.param == "memory":
        notes: dict[Any, tuple[int, str]] = {}
        yield lambda worker: MemoryInHand(notes, worker=worker)
        return
    client = connect(request.getfixturevalue("redis_url"))
    client.delete("boxengine:in_hand:in_hand_outbox_item")
    yield lambda worker: RedisInHand(client, worker=worker)
    client.close()


def test_an_item_that_nobody_noted_is_new(make: Make) -> None:
    assert make("a").put(BOX, "1:x") == 0


def test_the_workers_are_counted_that_noted_an_item_and_never_took_it_out(make: Make) -> None:
    make("a").put(BOX, "1:x")
    assert make("b").put(BOX, "1:x") == 1
    assert make("c").put(BOX, "1:x") == 2
    assert make("c").put(BOX, "1:x") == 2, "its own note accuses nobody"
    assert make("c").put(BOX, "2:y") == 0


def test_an_item_that_was_taken_out_is_new_again(make: Make) -> None:
    make("a").put(BOX, "1:x")
    make("a").take_out(BOX, "1:x")
    assert make("b").put(BOX, "1:x") == 0


def test_boxes_are_apart(make: Make) -> None:
    make("a").put(BOX, "1:x")
    assert make("b").put(make_box("other_outbox_item"), "1:x") == 0


def test_a_strangers_key_of_another_type_gives_way(redis_url: str) -> None:
    client = connect(redis_url)
    client.delete("boxengine:in_hand:in_hand_outbox_item")
    client.set("boxengine:in_hand:in_hand_outbox_item", "rubbish")
    in_hand = RedisInHand(client, worker="a")
    assert in_hand.put(BOX, "1:x") == 0
    assert RedisInHand(client, worker="b").put(BOX, "1:x") == 1
    client.close()


@pytest.mark.parametrize("rubbish", ["", "a", "many:a", "-1:a", b"\xff"])
def test_a_strangers_note_accuses_nobody(redis_url: str, rubbish: str | bytes) -> None:
    client = connect(redis_url)
    client.delete("boxengine:in_hand:in_hand_outbox_item")
    client.hset("boxengine:in_hand:in_hand_outbox_item", "1:x", rubbish)
    assert RedisInHand(client, worker="b").put(BOX, "1:x") == 0
    client.close()
